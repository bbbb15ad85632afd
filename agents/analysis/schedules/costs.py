"""The cost of a schedule over seeds, at prices of FLOPs and of memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agents.analysis.statistics import Interval, differences_by_seed


class RunPrices(NamedTuple):
    """The errors that a full pass costs, and the errors per tick that the size of the untrained predictor costs."""

    pass_price: float
    memory_price: float = 0.0

    def __str__(self) -> str:
        return f"{self.pass_price:g}" + f", {self.memory_price:g}" * bool(self.memory_price)


def size_of(parameters: Sequence[float]) -> float:
    """Return the size of a run: the sum of the parameters over the ticks 1..B, divided by those at tick 0.

    It is 0 for a learner that starts without parameters.
    """
    untrained, *others = parameters
    return sum(others) / untrained if untrained else 0.0


@dataclass(frozen=True)
class ScheduleCosts:
    """The runs of one schedule.

    Attributes:
        schedule: its name, see `agents.analysis.schedules.names`.
        cer: cumulative error rate of ticks 0 to B, by seed.
        passes: full passes, by seed.
        size: by seed, see `size_of`.
        network: digest of the network that decides in a learned schedule; None for another schedule.
    """

    schedule: str
    cer: dict[int, float]
    passes: dict[int, float]
    size: dict[int, float]
    network: str | None = None

    def of(self, seeds: Iterable[int]) -> ScheduleCosts:
        """Return the runs of these seeds; KeyError if one is missing."""
        kept = sorted(seeds)
        cer, passes, size = ({seed: one[seed] for seed in kept} for one in (self.cer, self.passes, self.size))
        return replace(self, cer=cer, passes=passes, size=size)

    def costs(self, prices: RunPrices) -> dict[int, float]:
        """Return the cost of each run in errors, by seed."""
        return {
            seed: cer + prices.pass_price * self.passes[seed] + prices.memory_price * self.size[seed]
            for seed, cer in self.cer.items()
        }

    def minus(self, other: ScheduleCosts, prices: RunPrices) -> Interval:
        """Return the difference of the costs over the seeds that both have."""
        return Interval.of(list(differences_by_seed(self.costs(prices), other.costs(prices)).values()))


def on_common_seeds(schedules: Sequence[ScheduleCosts]) -> list[ScheduleCosts]:
    """Return the schedules on the seeds that all of them have, or on their own if these are fewer than two."""
    common = set.intersection(*(set(one.cer) for one in schedules)) if schedules else set()
    return [one.of(common) for one in schedules] if len(common) > 1 else list(schedules)
