"""The findings of the paper, and the verdict on each.

A finding does not hold if at least one of its comparisons is contradicted, and is undecided if none is contradicted and
at least one is undecided. Otherwise it holds, or holds where run if some comparisons were not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.reproduction.claims import cifar, mnist, text
from agents.reproduction.claims.comparisons import Pick, picker
from agents.reproduction.claims.setups import Setup, read_setup
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NOT_RUN, UNDECIDED, PairedComparison
from agents.runs.load import FinishedRun

DOES_NOT_HOLD = "does not hold"
HOLDS_WHERE_RUN = "holds where run"


@dataclass(frozen=True)
class Finding:
    """A finding of the paper, with the function that compares the picked runs for each setting of its claim."""

    id: str  # its family and a word or letter, as cifar-a
    statement: str
    compare: Callable[[Pick, Setup], Sequence[PairedComparison]]

    @property
    def family(self) -> str:
        """The family of findings with the same setup."""
        return family(self.id)


def family(id: str) -> str:
    """Return the family of a finding, ``cifar`` for the id ``cifar-a``."""
    return id.partition("-")[0]


FINDINGS = tuple(
    Finding(id, statement, compare)
    for findings in (cifar.FINDINGS, mnist.FINDINGS, text.FINDINGS, cifar.ABLATION_FINDINGS)
    for id, (statement, compare) in findings.items()
)


@dataclass(frozen=True)
class JudgedFinding:
    """A finding with its comparisons, of which some may have no runs."""

    finding: Finding
    comparisons: Sequence[PairedComparison]

    @property
    def with_runs(self) -> list[PairedComparison]:
        """The comparisons that have runs."""
        return [one for one in self.comparisons if one.interval is not None]

    def count(self, verdict: str) -> int:
        """Return the number of comparisons with a verdict."""
        return sum(one.verdict == verdict for one in self.comparisons)

    @property
    def verdict(self) -> str:
        """The verdict on the finding, by the rule of this module."""
        if not self.with_runs:
            return NOT_RUN
        if self.count(CONTRADICTED):
            return DOES_NOT_HOLD
        if self.count(UNDECIDED):
            return UNDECIDED
        return HOLDS_WHERE_RUN if self.count(NOT_RUN) else HOLDS

    @property
    def weakest(self) -> PairedComparison | None:
        """The comparison that supports the finding least; None if no comparison has runs."""
        rank = {CONTRADICTED: 0, UNDECIDED: 1, HOLDS: 2}
        return min(self.with_runs, key=lambda one: (rank[one.verdict], one.strength), default=None)


def judge(runs: Mapping[str, Sequence[FinishedRun]], scale: str) -> list[JudgedFinding]:
    """Judge all findings in the paper's order; ``runs`` maps the id of a finding to the runs that decide it."""
    judged = []
    for finding in FINDINGS:
        setup = read_setup(finding.family, scale)
        pick = picker(runs.get(finding.id, ()), setup.env)
        judged.append(JudgedFinding(finding, finding.compare(pick, setup)))
    return judged
