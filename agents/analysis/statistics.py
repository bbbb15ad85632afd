"""Means over seeds with confidence intervals, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05  # the level of every test; an interval has the probability 1 − ALPHA
_Key = TypeVar("_Key")
_One = TypeVar("_One")
_Other = TypeVar("_Other")


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval by Student's t: mean ± half.

    Attributes:
        mean: mean of the values.
        half: half of the width of the interval; None for a single value.
        n: number of values.
    """

    mean: float
    half: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the interval of values, one per seed.

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
        """Return ``mean ± half`` in a number format, or the mean of a single value; only the mean takes a sign."""
        return f"{self.mean:{form}}" + ("" if self.half is None else f" ± {self.half:{form.removeprefix('+')}}")


def band(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return means (T,) over seeds of values (seeds, T) and half of their 95 % intervals (T,), None for one seed."""
    n = len(values)
    half = _quantile(n) * values.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else None
    return values.mean(axis=0), half


def _quantile(n: int) -> float:
    """Return half of the interval of a mean of n values, in standard errors of the mean."""
    from scipy.special import stdtrit  # its import takes as long as all other imports here

    return float(stdtrit(n - 1, 1 - ALPHA / 2))


def pairs_by_seed(these: Mapping[int, _One], those: Mapping[int, _Other]) -> dict[int, tuple[_One, _Other]]:
    """Return what both have for each common seed, in ascending order of the seeds.

    Both have the same stream for a seed, so the effect of the stream cancels in a difference.

    >>> pairs_by_seed({7: 3.0, 1: 5.0}, {1: 2.0, 7: 4.0, 8: 9.0})
    {1: (5.0, 2.0), 7: (3.0, 4.0)}
    """
    return {seed: (these[seed], those[seed]) for seed in sorted(these.keys() & those.keys())}


def differences_by_seed(these: Mapping[int, float], those: Mapping[int, float]) -> dict[int, float]:
    """Return these − those for each common seed, in ascending order of the seeds."""
    return {seed: one - other for seed, (one, other) in pairs_by_seed(these, those).items()}


def paired_difference(these: Mapping[int, float], those: Mapping[int, float]) -> Interval | None:
    """Return the mean of these − those over common seeds; None if there is no common seed.

    >>> paired_difference({0: 3.0, 1: 5.0, 2: 4.0}, {0: 2.0, 1: 4.0, 7: 9.0})
    Interval(mean=1.0, half=0.0, n=2)
    """
    differences = differences_by_seed(these, those)
    return Interval.of(list(differences.values())) if differences else None


def lowest(totals: Mapping[_Key, Mapping[int, float]]) -> _Key:
    """Return the first key with the lowest mean over the seeds that all share; over its own seeds if they share none.

    >>> lowest({"a": {0: 1.0, 1: 9.0}, "b": {0: 2.0}})
    'a'
    """
    common = set.intersection(*(set(by_seed) for by_seed in totals.values()))
    means = {
        key: mean(total for seed, total in by_seed.items() if seed in common or not common)
        for key, by_seed in totals.items()
    }
    return min(means, key=means.__getitem__)


def paired_p_value(these: Mapping[int, float], those: Mapping[int, float]) -> float | None:
    """Return the two-sided p-value of Student's paired t-test over common seeds; None for fewer than two seeds.

    >>> round(paired_p_value({0: 3.0, 1: 5.5, 2: 4.0}, {0: 2.0, 1: 4.0, 2: 3.5}), 4)
    0.0742
    """
    differences = list(differences_by_seed(these, those).values())
    return p_value(mean(differences), stdev(differences), len(differences)) if len(differences) > 1 else None


def p_value(distance: float, deviation: float, n: int) -> float:
    """Return the two-sided p-value of a mean of n values at a distance from a limit, by Student's t.

    The deviation is that of one value. If it is 0 and the distance is not, p is 0, the limit for a vanishing spread.
    """
    if deviation == 0:
        return 0.0 if distance else 1.0
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(distance) / deviation * math.sqrt(n)))


def holm(p_values: Sequence[float], tests: int | None = None) -> list[float]:
    """Return p-values after Holm's correction for multiple tests, in the same order.

    Args:
        p_values: the p-values of the reported tests.
        tests: number of tests that the reported ones were selected from by their results; None: all are reported.

    S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, 0.04], tests=3)
    [0.03, 0.08]
    """
    tests = len(p_values) if tests is None else tests
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (tests - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
