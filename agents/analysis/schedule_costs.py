"""The cost of a schedule over seeds, at a price of FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from agents.analysis.statistics import Interval

RECOMMENDED = "geometric(factor=1.6, first=1, stop=0.8)"  # docs/waiting.md has the evidence


@dataclass(frozen=True)
class ScheduleCosts:
    """The runs of one schedule.

    Attributes:
        schedule: as text, as a run records it.
        cer: cumulative error rate, by seed.
        passes: full passes, by seed.
    """

    schedule: str
    cer: dict[int, float]
    passes: dict[int, float]

    def costs(self, pass_price: float) -> dict[int, float]:
        """Return the cost of each run in errors, by seed."""
        return {seed: cer + pass_price * self.passes[seed] for seed, cer in self.cer.items()}

    def minus(self, other: ScheduleCosts, pass_price: float) -> Interval:
        """Return the difference of the costs over the seeds that both have."""
        own, others = self.costs(pass_price), other.costs(pass_price)
        return Interval.of([own[seed] - others[seed] for seed in own.keys() & others.keys()])
