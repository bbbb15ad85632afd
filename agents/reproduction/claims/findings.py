"""The findings of the paper, and the verdict on each.

A comparison holds or is contradicted if its p-value after Holm's correction over the comparisons of its finding is
below 5 %. So the probability that any comparison of a finding without differences is decided is at most 5 %.

A finding is judged by two kinds of evidence: by its comparisons, and by one combined test of all of them
(`combined`). Evidence for the finding is a comparison that holds, or a combined test on the paper's side; evidence
against it is a comparison that is contradicted, or a combined test on the other side. Against closeness, only the
comparisons are evidence.

| evidence | verdict |
| --- | --- |
| for and against | mixed: the statement depends on width, waiting time or method |
| only against | does not hold |
| only for, and the combined test holds, or every comparison that was run holds | holds |
| otherwise | undecided |

A finding "holds where run" if some of its comparisons have no runs, or one seed.

Most findings state an order for every width and waiting time. To require a decided comparison for each of them would
leave a finding of 40 comparisons undecided forever: somewhere two settings are nearly equal. On the other hand an
average alone could hide a setting in which the order is reversed. The rule asks for both: the order holds on average,
and it is reversed nowhere, as far as the seeds can tell. The report counts the comparisons that hold by themselves. If
all of them do, then the finding holds in every setting, and this statement needs no correction: each comparison must be
decided, so more comparisons make it harder, not easier (intersection–union test). The correction is for the opposite
statement, that at least one comparison is contradicted; more comparisons make that easier. A finding without any true
difference is refuted with a probability of at most 5 %: 2.5 % by its comparisons and 2.5 % by the combined test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agents.analysis.statistics import ALPHA, holm
from agents.reproduction.claims import cifar, fashion, mnist, text
from agents.reproduction.claims.combined import Combined, combine, seeds_to_decide
from agents.reproduction.claims.comparisons import Picker
from agents.reproduction.claims.setups import Setup, read_setup
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NOT_RUN, UNDECIDED, PairedComparison
from agents.runs.load import FinishedRun

DOES_NOT_HOLD = "does not hold"
HOLDS_WHERE_RUN = "holds where run"
MIXED = "mixed"
NOT_OF_THE_PAPER = ("fashion",)  # families that repeat findings of the paper on other data


@dataclass(frozen=True)
class Finding:
    """A finding of the paper, with the function that compares the picked runs for each setting of its claim."""

    id: str  # its family and a word or letter, as cifar-a
    statement: str
    compare: Callable[[Picker, Setup], Sequence[PairedComparison]]

    @property
    def family(self) -> str:
        """The family of findings with the same setup."""
        return family(self.id)


def family(id: str) -> str:
    """Return the family of a finding, ``cifar`` for the id ``cifar-a``."""
    return id.partition("-")[0]


FINDINGS = tuple(
    Finding(id, statement, compare)
    for findings in (cifar.FINDINGS, mnist.FINDINGS, text.FINDINGS, cifar.ABLATION_FINDINGS, fashion.FINDINGS)
    for id, (statement, compare) in findings.items()
)


@dataclass(frozen=True)
class JudgedFinding:
    """A finding with its comparisons, of which some may have no runs."""

    finding: Finding
    comparisons: Sequence[PairedComparison]
    missing: Sequence[Mapping[str, Any]] = ()  # values of the settings without any run

    @property
    def with_runs(self) -> list[PairedComparison]:
        """The comparisons that have runs."""
        return [one for one in self.comparisons if one.differences]

    @cached_property
    def p_values(self) -> Mapping[str, float]:
        """The p-values after Holm's correction, by label and quantity, of all comparisons with two seeds."""
        tested = [(_key(one), one.p_value) for one in self.comparisons]
        found = [(key, p) for key, p in tested if p is not None]
        return dict(zip([key for key, _ in found], holm([p for _, p in found]), strict=True))

    def verdict_of(self, comparison: PairedComparison) -> str:
        """Return the verdict on one of the comparisons."""
        return comparison.verdict(self.p_values.get(_key(comparison)))

    def p_of(self, comparison: PairedComparison) -> float | None:
        """Return the corrected p-value of one of the comparisons; None for fewer than two seeds."""
        return self.p_values.get(_key(comparison))

    def having(self, verdict: str) -> list[PairedComparison]:
        """Return the comparisons with a verdict."""
        return [one for one in self.comparisons if self.verdict_of(one) == verdict]

    def count(self, verdict: str) -> int:
        """Return the number of comparisons with a verdict."""
        return len(self.having(verdict))

    @cached_property
    def combined(self) -> Combined | None:
        """The combined test of the comparisons; None if there is none, see `combine`."""
        return combine(self.comparisons)

    @property
    def verdict(self) -> str:
        """The verdict on the finding, by the rule of this module."""
        if not self.with_runs:
            return NOT_RUN
        together = UNDECIDED if self.combined is None else self.combined.verdict
        in_favour = self.count(HOLDS) > 0 or together == HOLDS
        against = self.count(CONTRADICTED) > 0 or together == CONTRADICTED
        if against:
            return MIXED if in_favour else DOES_NOT_HOLD
        if together == HOLDS or self.count(HOLDS) == len(self.with_runs):
            untested = self.count(NOT_RUN) or any(one.p_value is None for one in self.with_runs)
            return HOLDS_WHERE_RUN if untested else HOLDS
        return UNDECIDED

    @property
    def tests_to_decide(self) -> int:
        """The number of tests that are not decided; they share the 5 % in the next step of Holm's procedure."""
        return sum(1 for p in self.p_values.values() if p >= ALPHA)

    @property
    def seeds_needed(self) -> int | None:
        """The number of seeds that would decide an undecided finding; None for more than 100, or if unknown.

        The combined test may decide it, or a comparison on the other side may be contradicted.
        """
        combined = [] if self.combined is None else [self.combined.seeds_needed]
        against = [
            seeds_to_decide(one.distance, one.deviation, self.tests_to_decide)
            for one in self.comparisons
            if one.deviation is not None and one.distance < 0
        ]
        return min((seeds for seeds in (*combined, *against) if seeds is not None), default=None)

    @property
    def weakest(self) -> PairedComparison | None:
        """The comparison that supports the finding least; None if no comparison has runs."""
        rank = {CONTRADICTED: 0, UNDECIDED: 1, HOLDS: 2}
        return min(self.with_runs, key=lambda one: (rank[self.verdict_of(one)], one.strength), default=None)


def _key(comparison: PairedComparison) -> str:
    return f"{comparison.label}: {comparison.quantity}"


def judge(runs: Mapping[str, Sequence[FinishedRun]], scale: str) -> list[JudgedFinding]:
    """Judge findings, in the paper's order; ``runs`` maps the id of a finding to the runs that decide it."""
    judged = []
    for finding in FINDINGS:
        if finding.id not in runs:
            continue
        setup = read_setup(finding.family, scale)
        pick = Picker(runs[finding.id], setup.env)
        comparisons = finding.compare(pick, setup)
        judged.append(JudgedFinding(finding, comparisons, pick.missing))
    return judged
