"""One comparison between runs, its interval over seeds, and what it says about a prediction.

A comparison is the mean difference of two settings, paired over the seeds that both were run with. It holds where its
95 % interval lies on the predicted side of zero, it is contradicted where the interval lies on the other side, and it
is undecided where the interval holds zero, or where there are fewer than two seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from agents.statistics import LEVEL, Interval

HOLDS = "holds"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_RUN = "not run"
NONE_OF_ITS_SIZE = "with none of its size"


@dataclass(frozen=True)
class Comparison:
    """A comparison.

    Attributes:
        what: of what with what, as ``sm 4: w=10 − w=2``.
        measure: of which measure, ``CER`` for example.
        interval: of the difference over seeds; None where there is none.
        predicted: the side of zero on which the paper has it; ``close``: within ``tolerance`` of zero.
        tolerance: what counts as close, in the measure's unit.
        without: what is said where there is no interval.
    """

    what: str
    measure: str
    interval: Interval | None
    predicted: Literal["below", "above", "close"] = "below"
    tolerance: float = 0.0
    without: str = NOT_RUN

    @property
    def verdict(self) -> str:
        """What the interval says about the prediction."""
        if self.interval is None:
            return self.without
        if self.interval.half is None:
            return UNDECIDED
        low, high = self.interval.mean - self.interval.half, self.interval.mean + self.interval.half
        if self.predicted == "close":
            low, high = _from_the_edge(low, high, self.tolerance)
        elif self.predicted == "above":
            low, high = -high, -low
        return HOLDS if high < 0 else CONTRADICTED if low > 0 else UNDECIDED

    @property
    def effect(self) -> float | None:
        """Cohen's d of paired differences: their mean over their standard deviation; None where that is not known."""
        if self.interval is None or not self.interval.half:
            return None
        from scipy.special import stdtrit  # late, as in `agents.statistics`

        n = self.interval.n
        deviation = self.interval.half * math.sqrt(n) / float(stdtrit(n - 1, (1 + LEVEL) / 2))
        return self.interval.mean / deviation

    @property
    def strength(self) -> float:
        """How far the difference lies on the predicted side, in half intervals; without an interval −inf."""
        if self.interval is None or self.interval.half is None:
            return float("-inf")
        mean = self.interval.mean
        ahead = {"below": -mean, "above": mean, "close": self.tolerance - abs(mean)}[self.predicted]
        if self.interval.half == 0:
            return 0.0 if ahead == 0 else float("inf") if ahead > 0 else float("-inf")
        return ahead / self.interval.half


def _from_the_edge(low: float, high: float, tolerance: float) -> tuple[float, float]:
    """The least and the largest of \\|difference\\| − tolerance over an interval."""
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return least - tolerance, max(abs(low), abs(high)) - tolerance
