"""Means over seeds, with the interval in which the true one lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        return cls(mean(values), _quantile(n) * stdev(values) / math.sqrt(n), n)

    def text(self, form: str = ".2f") -> str:
        """Mean ± half, each in the given format, a sign for the mean alone; without a ± where there is one value."""
        return f"{self.mean:{form}}" + ("" if self.half is None else f" ± {self.half:{form.removeprefix('+')}}")


def band(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Means (T,) over seeds and half of their 95 % intervals (T,), None of one seed, of values (seeds, T)."""
    n = len(values)
    half = _quantile(n) * values.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else None
    return values.mean(axis=0), half


def _quantile(n: int) -> float:
    """How many standard errors of a mean of n values are half of its interval."""
    from scipy.special import stdtrit  # takes as long to import as everything else here

    return float(stdtrit(n - 1, (1 + LEVEL) / 2))


def paired(these: Mapping[int, float], those: Mapping[int, float]) -> Interval | None:
    """Mean of these − those over the seeds that both have; None if they have none in common.

    The stream of a seed is the same for both, so what it adds to either cancels.

    >>> paired({0: 3.0, 1: 5.0, 2: 4.0}, {0: 2.0, 1: 4.0, 7: 9.0})
    Interval(mean=1.0, half=0.0, n=2)
    """
    common = [seed for seed in these if seed in those]
    return Interval.of([these[seed] - those[seed] for seed in common]) if common else None


def paired_p(these: Mapping[int, float], those: Mapping[int, float]) -> float | None:
    """Two-sided p-value of Student's paired t-test over the seeds that both have; None of fewer than two.

    Differences that are all the same and not 0 have no spread to be tested against: p is then 0, as in the limit.

    >>> round(paired_p({0: 3.0, 1: 5.5, 2: 4.0}, {0: 2.0, 1: 4.0, 2: 3.5}), 4)
    0.0742
    """
    differences = [these[seed] - those[seed] for seed in these if seed in those]
    n = len(differences)
    if n < 2:
        return None
    error = stdev(differences) / math.sqrt(n)
    if error == 0:
        return 1.0 if mean(differences) == 0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(mean(differences) / error)))


def holm(p_values: Sequence[float], tests: int | None = None) -> list[float]:
    """Holm's correction of p-values that were computed together, in their order.

    Args:
        p_values: of the tests that are told.
        tests: how many they were chosen from by their outcome; None: all are told.

    S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, 0.04], tests=3)
    [0.03, 0.08]
    """
    tests = len(p_values) if tests is None else tests
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (tests - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
