"""The outcome of a plan: its finished runs, recorded runs of the package among them, and the findings they decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction.claims.findings import JudgedFinding, judge
from agents.reproduction.plans import Plan
from agents.runs import archive, load
from agents.runs.load import FinishedRun


@dataclass(frozen=True)
class Outcome:
    """The outcome of one plan at one scale."""

    plan: Plan
    scale: str
    requested: Sequence[RunSpec]
    runs: Sequence[FinishedRun]  # the requested runs that are finished
    recorded: bool = False  # whether the runs come from the package

    @property
    def coverage(self) -> str:
        """The number of finished runs as text."""
        return f"{len(self.runs)} of {len(self.requested)} runs" + (" recorded" if self.recorded else "")


def recorded_files() -> list[Path]:
    """Return the packed files of the package, sorted by name."""
    folder = Path(str(files(__package__))) / "recorded"
    return sorted(folder.glob(f"*{archive.SUFFIX}"))


def recorded_runs() -> list[FinishedRun]:
    """Return the runs of the packed files of the package."""
    paths = recorded_files()
    return load.find(*paths)[0] if paths else []


def select(specs: Iterable[RunSpec], runs: Iterable[FinishedRun]) -> list[FinishedRun]:
    """Return the finished runs that were requested, in the order of the specifications.

    A run is found by its identity, see `agents.catalogue.run_config`; versions, machine, engine and number of threads
    may differ. If several runs have the identity of one specification, the first one is taken.
    """
    by_key: dict[tuple[str, str, int], list[FinishedRun]] = {}
    for run in runs:
        config = run.run_config
        by_key.setdefault((config.env, config.agent.id, config.seed), []).append(run)
    found = []
    for spec in specs:
        wanted = resolve(spec, spec.known_facts())
        candidates = by_key.get((spec.env, spec.agent, spec.seed), ())
        match = next((run for run in candidates if wanted.agrees(run.run_config)), None)
        if match is not None:
            found.append(match)
    return found


def judge_outcomes(outcomes: Sequence[Outcome], scale: str) -> list[JudgedFinding]:
    """Judge all findings of the paper, each by the runs of all plans that can decide it."""
    by_finding: dict[str, dict[int, FinishedRun]] = {}
    for outcome in outcomes:
        for finding in outcome.plan.findings:
            by_finding.setdefault(finding, {}).update({id(run): run for run in outcome.runs})
    return judge({finding: list(runs.values()) for finding, runs in by_finding.items()}, scale)
