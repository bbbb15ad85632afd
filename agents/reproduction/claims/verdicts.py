"""The verdict on one comparison: where the 95 % interval of a difference lies, relative to the paper's prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from agents.analysis.statistics import LEVEL, Interval

HOLDS = "holds"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_RUN = "not run"
NO_EQUAL_SIZE = "without a run of equal size"

Prediction = Literal["below", "above", "close"]


@dataclass(frozen=True)
class PairedComparison:
    """The mean difference of two settings, paired over the seeds that both have, and the paper's prediction.

    The paper predicts that the difference is below zero, above zero, or close: within ``tolerance`` of zero.
    """

    label: str  # the two settings, as sm 4: w=10 − w=2
    quantity: str  # name of the compared quantity, as CER
    interval: Interval | None  # None if no seed has both settings
    predicted: Prediction = "below"
    tolerance: float = 0.0  # in the unit of the quantity
    missing: str = NOT_RUN  # the verdict if there is no interval

    @property
    def verdict(self) -> str:
        """The verdict on the prediction; undecided for one seed, or if the interval contains the predicted limit."""
        if self.interval is None:
            return self.missing
        if self.interval.half is None:
            return UNDECIDED
        low, high = self.interval.mean - self.interval.half, self.interval.mean + self.interval.half
        if self.predicted == "close":  # the bounds of |difference| - tolerance
            nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
            low, high = nearest - self.tolerance, max(abs(low), abs(high)) - self.tolerance
        elif self.predicted == "above":
            low, high = -high, -low
        return HOLDS if high < 0 else CONTRADICTED if low > 0 else UNDECIDED

    @property
    def effect(self) -> float | None:
        """Cohen's d of paired differences: mean divided by standard deviation; None if that is 0 or unknown."""
        if self.interval is None or not self.interval.half:
            return None
        from scipy.special import stdtrit  # slow to import, see `agents.analysis.statistics`

        n = self.interval.n
        deviation = self.interval.half * math.sqrt(n) / float(stdtrit(n - 1, (1 + LEVEL) / 2))
        return self.interval.mean / deviation

    @property
    def strength(self) -> float:
        """The distance of the mean from the limit, on the predicted side, in half intervals; −inf if unknown."""
        if self.interval is None or self.interval.half is None:
            return -math.inf
        mean = self.interval.mean
        distance = {"below": -mean, "above": mean, "close": self.tolerance - abs(mean)}[self.predicted]
        if self.interval.half == 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / self.interval.half
