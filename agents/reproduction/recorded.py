"""Runs that come with the package, so that figures and verdicts can be had again without computing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from agents import finished, packed
from agents.experiments.spec import RunSpec
from agents.finished import FinishedRun
from agents.reproduction.expected import expected


def recorded_files() -> list[Path]:
    """The packed files of the package, in the order of their names."""
    folder = Path(str(files(__package__))) / "recorded"
    return sorted(folder.glob(f"*{packed.SUFFIX}"))


def recorded_runs() -> list[FinishedRun]:
    """All runs in them, each configuration once; empty where there is no file."""
    paths = recorded_files()
    return finished.find(*paths)[0] if paths else []


def among(specs: Iterable[RunSpec], runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Of finished runs those that were asked for, in the order of the specs.

    They are found by what their configurations say: environment, agent, width, when it trains, replay, seed, the
    hyper-parameters and the recipe. Versions, machine, engine and number of threads, which change the rounding, may
    differ. Of several runs of one spec it is the first.
    """
    by_key: dict[tuple[str, str, int], list[FinishedRun]] = {}
    for run in runs:
        key = run.config["env"], run.config["agent"].get("id", ""), run.seed
        by_key.setdefault(key, []).append(run)
    found = []
    for spec in specs:
        wanted = expected(spec)
        candidates = by_key.get((spec.env, spec.agent, spec.seed), ())
        match = next((run for run in candidates if wanted.agrees(run.config)), None)
        if match is not None:
            found.append(match)
    return found
