"""Means over seeds, with the interval in which the true one lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval, by Student's t: mean ± half.

    Attributes:
        mean: of the values.
        half: half of the interval's width; None for one value, of which no spread is known.
        n: number of values.
    """

    mean: float
    half: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of one value per seed.

        Raises:
            ValueError: there is no value.

        >>> Interval.of([1.0, 2.0, 3.0])
        Interval(mean=2.0, half=2.484..., n=3)
        """
        if not values:
            raise ValueError("values=[]: a mean needs at least one; give one value per seed")
        n = len(values)
        if n == 1:
            return cls(float(values[0]), None, 1)
        from scipy.stats import t  # takes as long to import as everything else here

        return cls(mean(values), float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) / math.sqrt(n), n)

    def text(self, form: str = ".2f") -> str:
        """Mean ± half, each in the given format, a sign for the mean alone; without a ± where there is one value."""
        return f"{self.mean:{form}}" + ("" if self.half is None else f" ± {self.half:{form.removeprefix('+')}}")


def paired(these: Mapping[int, float], those: Mapping[int, float]) -> Interval | None:
    """Mean of these − those over the seeds that both have; None if they have none in common.

    The stream of a seed is the same for both, so what it adds to either cancels.

    >>> paired({0: 3.0, 1: 5.0, 2: 4.0}, {0: 2.0, 1: 4.0, 7: 9.0})
    Interval(mean=1.0, half=0.0, n=2)
    """
    common = [seed for seed in these if seed in those]
    return Interval.of([these[seed] - those[seed] for seed in common]) if common else None
