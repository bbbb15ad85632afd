"""One comparison: a difference that is paired over seeds, the paper's prediction, and the p-value of the prediction.

A p-value is the smallest α at which the 1 − α interval of the mean difference lies on one side of the predicted limit.
Without a tolerance this is the two-sided p-value of Student's paired t-test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import stdev
from typing import Literal

from agents.analysis.statistics import ALPHA, Interval, p_value

HOLDS = "holds"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_RUN = "not run"
NO_EQUAL = "without a run of equal size or cost"

Prediction = Literal["below", "above", "close"]


@dataclass(frozen=True)
class PairedComparison:
    """The differences of two settings, by seed, and the paper's prediction.

    The paper predicts that the mean difference is below zero, above zero, or close: within ``tolerance`` of zero.
    """

    label: str  # the two settings, as sm 4: w=10 − w=2
    quantity: str  # name of the compared quantity, as CER
    differences: Mapping[int, float]  # by seed; empty if no seed has both settings
    predicted: Prediction = "below"
    tolerance: float = 0.0  # in the unit of the quantity
    scale: float = 1.0  # mean of the compared values, the unit of `support`
    missing: str = NOT_RUN  # the verdict if there is no difference

    @cached_property
    def interval(self) -> Interval | None:
        """The mean difference and its 95 % interval; None if no seed has both settings."""
        return Interval.of(list(self.differences.values())) if self.differences else None

    @property
    def distance(self) -> float:
        """The distance of the mean from the predicted limit, positive on the predicted side; 0 if not run."""
        if self.interval is None:
            return 0.0
        mean = self.interval.mean
        return {"below": -mean, "above": mean, "close": self.tolerance - abs(mean)}[self.predicted]

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the differences over seeds; None for fewer than two seeds."""
        return stdev(self.differences.values()) if len(self.differences) > 1 else None

    @cached_property
    def p_value(self) -> float | None:
        """The p-value of the prediction, see this module; None for fewer than two seeds."""
        return None if self.deviation is None else p_value(self.distance, self.deviation, len(self.differences))

    def verdict(self, p: float | None) -> str:
        """Return the verdict at a p-value, which may be corrected for the number of comparisons; None: one seed."""
        if self.interval is None:
            return self.missing
        return verdict(self.distance, p)

    @property
    def effect(self) -> float | None:
        """Cohen's d of paired differences: mean divided by standard deviation; None if that is 0 or unknown."""
        return self.interval.mean / self.deviation if self.interval is not None and self.deviation else None

    @property
    def strength(self) -> float:
        """The distance from the limit in half intervals, negative on the other side; −inf if unknown."""
        if self.interval is None or self.interval.half is None:
            return -math.inf
        if self.interval.half == 0:
            return math.copysign(math.inf, self.distance) if self.distance else 0.0
        return self.distance / self.interval.half

    @property
    def support(self) -> dict[int, float]:
        """The distance from the limit of each seed's difference, as a fraction of the compared values.

        For ``close`` it is the distance from the limit on the mean's side, so that differences of opposite signs in
        two comparisons do not cancel.
        """
        mean = self.interval.mean if self.interval else 0.0
        side = {"below": -1.0, "above": 1.0, "close": -math.copysign(1.0, mean)}[self.predicted]
        return {seed: (self.tolerance + side * value) / self.scale for seed, value in self.differences.items()}


def verdict(distance: float, p: float | None) -> str:
    """Return the verdict for a mean at a distance from the limit, positive on the predicted side."""
    if p is None or p >= ALPHA:
        return UNDECIDED
    return HOLDS if distance > 0 else CONTRADICTED
