"""The outcome of a plan: its finished runs, recorded runs of the package among them, and the findings they decide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from agents.catalogue.data_facts import DataFacts, facts_of, split_keywords
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction.claims.findings import JudgedFinding, family, judge
from agents.reproduction.plans import NAMES, Plan, Request, read
from agents.runs import archive, load
from agents.runs.load import FinishedRun

_DATA = "protocol.digest"  # of the images or tokens; a planned run does not know it
_TEXT_FILES = ("train", "valid", "test", "tokenizer")  # settings that name files; a run must be on the same content


@dataclass(frozen=True)
class Outcome:
    """The outcome of one plan at one scale."""

    plan: Plan
    scale: str
    runs: Sequence[FinishedRun]  # the requested runs that are finished
    missing: Sequence[RunSpec]  # the requested runs that are not
    recorded: bool = False  # whether the runs come from the package

    @classmethod
    def of(
        cls, plan: Plan, scale: str, requested: Iterable[RunSpec], runs: Iterable[FinishedRun], recorded: bool = False
    ) -> Outcome:
        """Return the outcome of a plan whose requested runs are among these finished runs, or are not.

        Raises:
            ValueError: the finished runs of one environment have different data, such as two texts.
        """
        finished, missing = split(requested, runs)
        _require_equal_data(finished)
        return cls(plan, scale, finished, missing, recorded)

    @property
    def coverage(self) -> str:
        """The number of finished runs as text."""
        text = f"{len(self.runs):,} of {len(self.runs) + len(self.missing):,} runs"
        return text + (" recorded" if self.recorded else "")


def recorded_files() -> list[Path]:
    """Return the packed files of the package, sorted by name."""
    folder = Path(str(files(__package__))) / "recorded"
    return sorted(folder.glob(f"*{archive.SUFFIX}"))


def recorded_runs() -> list[FinishedRun]:
    """Return the runs of the packed files of the package."""
    paths = recorded_files()
    return load.find(*paths, strict=True)[0] if paths else []


def split(specs: Iterable[RunSpec], runs: Iterable[FinishedRun]) -> tuple[list[FinishedRun], list[RunSpec]]:
    """Return the requested runs that are finished, in the order of the specifications, and those that are not.

    A run is found by its identity, see `agents.catalogue.run_config`; versions, machine, engine and number of threads
    may differ. If several runs have the identity of one specification, the first one is taken. If the specifications
    name files of text, only runs on these files are found.

    Raises:
        ValueError, DataUnavailableError: a specification names text that cannot be read.
    """
    by_key: dict[tuple[Any, ...], list[FinishedRun]] = {}
    for run in runs:
        by_key.setdefault(_key(run.run_config), []).append(run)
    finished, missing = [], []
    of_files: dict[str, DataFacts] = {}
    for spec in specs:
        wanted = resolve(spec, spec.known_facts())
        candidates = by_key.get(_key(wanted), [])
        if candidates and any(name in spec.settings for name in _TEXT_FILES):
            wanted = resolve(spec, _facts_of_files(spec, of_files))
        match = next((run for run in candidates if wanted.agrees(run.run_config)), None)
        if match is None:
            missing.append(spec)
        else:
            finished.append(match)
    return finished, missing


def _facts_of_files(spec: RunSpec, known: dict[str, DataFacts]) -> DataFacts:
    """Return the facts about the text of a specification; ``known`` keeps them, because a text may be long."""
    key = json.dumps([spec.env, split_keywords(spec.env, spec.as_dict()["settings"])[0]], sort_keys=True)
    if key not in known:
        known[key] = facts_of(spec.make_env())
    return known[key]


def _require_equal_data(runs: Iterable[FinishedRun]) -> None:
    first: dict[str, FinishedRun] = {}
    for run in runs:
        config = run.run_config
        other = first.setdefault(config.env, run)
        if config.get(_DATA, None) != other.run_config.get(_DATA, None):
            raise ValueError(
                f"{config.env}: {other.folder} and {run.folder} have different data; give --runs of one, without "
                "--recorded"
            )


def _key(config: RunConfig) -> tuple[Any, ...]:
    """Return some values of an identity, so that few runs are compared with all of its values."""
    return config.env, config.agent.id, config.agent.width, config.agent.wait, config.seed


def judge_outcomes(outcomes: Sequence[Outcome], runs: Sequence[FinishedRun], request: Request) -> list[JudgedFinding]:
    """Judge the findings of plans in the paper's order.

    Args:
        outcomes: of the plans.
        runs: the finished runs; a finding is judged by the runs of all plans of its family, also of other plans.
        request: what was asked of the plans.
    """
    wanted = {finding for outcome in outcomes for finding in outcome.plan.findings}
    by_finding: dict[str, dict[int, FinishedRun]] = {finding: {} for finding in wanted}
    families = {family(finding) for finding in wanted}
    for outcome in [*outcomes, *_others(families, {outcome.plan.name for outcome in outcomes}, runs, request)]:
        of_plan = _families(outcome.plan)
        for finding in wanted:
            if family(finding) in of_plan:
                by_finding[finding].update({id(run): run for run in outcome.runs})
    return judge({finding: list(found.values()) for finding, found in by_finding.items()}, request.scale)


def _families(plan: Plan) -> set[str]:
    """Return the families of the findings of a plan; the runs of the plans of one family differ only in its setup."""
    return {family(finding) for finding in plan.findings}


def _others(families: set[str], names: set[str], runs: Sequence[FinishedRun], request: Request) -> Iterator[Outcome]:
    """Yield the outcomes of plans with other names and a finding of the families, with the requested settings."""
    for name in NAMES:
        plan = read(name)
        if name in names or families.isdisjoint(_families(plan)) or not request.settings.keys().isdisjoint(plan.varies):
            continue
        specs = plan.specs(request.scale, request.seeds, request.settings)
        yield Outcome.of(plan, request.scale, filter(_is_possible, specs), runs)


def _is_possible(spec: RunSpec) -> bool:
    """Return whether the agent has the settings of a specification; another plan may have agents that lack some."""
    try:
        resolve(spec, spec.known_facts())
    except ValueError:
        return False
    return True
