"""What there is of the plans: the runs that were asked for, those that are finished, and what they decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agents.experiments.spec import RunSpec
from agents.finished import FinishedRun
from agents.reproduction.findings import Judged, family, judge
from agents.reproduction.plan import Plan
from agents.reproduction.recorded import among
from agents.reproduction.setting import FAMILIES, setting


@dataclass(frozen=True)
class Outcome:
    """Of one plan.

    Attributes:
        plan: the plan.
        scale: at which it was run.
        asked: all of its runs.
        runs: those that are finished.
        recorded: whether they came with the package.
    """

    plan: Plan
    scale: str
    asked: Sequence[RunSpec]
    runs: Sequence[FinishedRun]
    recorded: bool = False

    @classmethod
    def of(
        cls, plan: Plan, scale: str, asked: Sequence[RunSpec], runs: Sequence[FinishedRun], *, recorded: bool = False
    ) -> Outcome:
        """Of all finished runs that there are."""
        return cls(plan, scale, asked, among(asked, runs), recorded)

    @property
    def coverage(self) -> str:
        """How many of its runs there are, in words."""
        what = " recorded" if self.recorded else ""
        return f"{len(self.runs)} of {len(self.asked)} runs{what}"


def judged(outcomes: Sequence[Outcome], scale: str) -> list[Judged]:
    """All findings of the paper, each by the runs of the plans that can decide about it."""
    by_finding: dict[str, dict[int, FinishedRun]] = {}
    for outcome in outcomes:
        for finding in outcome.plan.findings:
            by_finding.setdefault(finding, {}).update({id(run): run for run in outcome.runs})
    return judge({finding: list(runs.values()) for finding, runs in by_finding.items()}, scale)


def notes(plans: Iterable[Plan], scale: str) -> list[str]:
    """What stands for what at a scale."""
    families = {family(id) for plan in plans for id in plan.findings}
    found = [setting(name, scale).note for name in FAMILIES if name in families]
    return [note for note in dict.fromkeys(found) if note]
