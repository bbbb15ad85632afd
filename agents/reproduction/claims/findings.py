"""The paper's findings, each with what decides about it.

A finding does not hold where at least one of its comparisons is contradicted, and is undecided where one is. Else it
holds; or, where some of its comparisons were not run, holds where run; or was not run, where none was. Nothing is
corrected for their number: of forty differences that are none, one is expected to be contradicted by chance, and one to
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.finished import FinishedRun
from agents.reproduction import ablation, cifar, mnist, text
from agents.reproduction.index import Index
from agents.reproduction.setting import Setting, setting
from agents.reproduction.verdicts import CONTRADICTED, HOLDS, NOT_RUN, UNDECIDED, Comparison

DOES_NOT_HOLD = "does not hold"
HOLDS_WHERE_RUN = "holds where run"


@dataclass(frozen=True)
class Finding:
    """What the paper says.

    Attributes:
        id: its family and a word or letter, as ``cifar-a``.
        says: the claim.
        compare: makes its comparisons, one for each setting that it speaks of.
    """

    id: str
    says: str
    compare: Callable[[Index, Setting], list[Comparison]]

    @property
    def family(self) -> str:
        """The group of findings whose `Setting` it has."""
        return family(self.id)


def family(id: str) -> str:
    """The group of findings that one belongs to, by its id."""
    return id.partition("-")[0]


@dataclass(frozen=True)
class Judged:
    """A finding with its comparisons, run or not."""

    finding: Finding
    comparisons: tuple[Comparison, ...]

    @property
    def run(self) -> tuple[Comparison, ...]:
        """The comparisons that were run."""
        return tuple(one for one in self.comparisons if one.interval is not None)

    def count(self, verdict: str) -> int:
        """Comparisons with a verdict."""
        return sum(one.verdict == verdict for one in self.comparisons)

    @property
    def verdict(self) -> str:
        """Of all of them, by the rule at the head of this module."""
        if not self.run:
            return NOT_RUN
        if self.count(CONTRADICTED):
            return DOES_NOT_HOLD
        if self.count(UNDECIDED):
            return UNDECIDED
        return HOLDS_WHERE_RUN if self.count(NOT_RUN) else HOLDS

    @property
    def weakest(self) -> Comparison | None:
        """The comparison that speaks least for the finding; None where none was run."""
        rank = {CONTRADICTED: 0, UNDECIDED: 1, HOLDS: 2}
        return min(self.run, key=lambda one: (rank[one.verdict], one.strength), default=None)


FINDINGS = (
    Finding(
        "cifar-a",
        "CER is lowest at an intermediate waiting time, w=10, for SM and Ens at each width",
        cifar.intermediate_wait,
    ),
    Finding("cifar-b", "final error: w=100 ≤ w=10 < w=2, for SM and Ens", cifar.waiting_ends_better),
    Finding("cifar-c", "before t=10, w=2 is ahead of w=10, for SM and Ens", cifar.greedy_begins_better),
    Finding("cifar-d", "wider is better, in CER and in final error, for SM and Ens", cifar.wider_is_better),
    Finding(
        "cifar-e", "Ens of c=64 is better at t=10 than Ens of c=4 at the end of the stream", cifar.large_is_ahead_early
    ),
    Finding("cifar-f", "CER: UMix ≤ Ens at c=4, Ens ≤ UMix at c=64", cifar.mixing_helps_small),
    Finding("cifar-g", "CER: Ens < SM at equal width", cifar.ensembles_help),
    Finding(
        "cifar-h",
        "gMoE and FF are better than the SM that they began as, and not better than an SM of their average size",
        cifar.growing_helps,
    ),
    Finding("cifar-i", "gEns has the worst CER at equal Mem", cifar.growing_ensembles_are_worst),
    Finding("cifar-j", "replay lowers CER at w=10, least that of gEns, at 5.5 times the compute", cifar.replay_helps),
    Finding("mnist-small", "h=4: w=1 is clearly worse than w=10 and w=50", mnist.greedy_fails_small),
    Finding("mnist-large", "h=64: w=1 is within a tenth of the CER at w=10", mnist.greedy_suffices_large),
    Finding("mnist-tardy", "waiting for everything has by far the worst CER", mnist.tardy_is_worst),
    Finding("mnist-final", "h=64: waiting for everything has the best final error", mnist.tardy_ends_best),
    Finding("text-experts", "more experts are better from the second mega-batch on", text.more_experts_are_better),
    Finding(
        "text-large",
        "large is better after the first mega-batch than every base row after the last",
        text.large_is_ahead_early,
    ),
    Finding("text-iid", "i.i.d. is better than sequential at equal data and compute", text.iid_is_better),
    Finding("text-waiting", "base: having waited is worse with the updates of one stage", text.waiting_needs_compute),
    Finding("text-ens", "Ens 4@4 is best at each tick among the rows with w=1", text.ensembles_are_best),
    Finding("text-gens", "gEns is ahead of gMoE at equal tick", text.growing_ensembles_are_ahead),
    Finding("text-fixed", "8 or 12 fixed experts are better than gMoE at equal tick", text.fixed_beats_growing),
    Finding("ablation-tree", "gMoE with a tree of gates is better than with a flat gate", ablation.trees_are_better),
    Finding("ablation-growing", "gMoE < fixed MoE < ensemble of fixed MoEs, in CER", ablation.growing_beats_fixed),
)


def judge(runs: Mapping[str, Sequence[FinishedRun]], scale: str) -> list[Judged]:
    """All findings of the paper, in its order.

    Args:
        runs: for the id of a finding, the runs that may decide about it; one that is missing was not run.
        scale: whose settings hold.
    """
    judged = []
    for finding in FINDINGS:
        now = setting(finding.family, scale)
        found = finding.compare(Index(runs.get(finding.id, ()), now.env), now)
        judged.append(Judged(finding, tuple(found)))
    return judged
