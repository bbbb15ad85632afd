"""Prices of a decision environment: fixed, or drawn anew for each episode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXAMPLES = {"pass_price": (40, 100), "memory_price": (0.01, 0.1)}
_FREE = 0.1  # share of the episodes whose price is 0 if the range begins at 0


@dataclass(frozen=True)
class PriceRange:
    """The prices of one kind: from ``low`` to ``high``, equal for a fixed price.

    A price of a range is drawn log-uniformly. A range from 0 gives a price of 0 to one episode in ten, and to the
    others a price from a thousandth of ``high`` on.
    """

    low: float
    high: float

    @classmethod
    def of(cls, name: str, value: Any) -> PriceRange:
        """Return the range of a keyword's value: a number, or two numbers.

        Raises:
            ValueError: neither, or a price is negative or infinite, or the second is below the first.
        """
        ends = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        numbers = len(ends) == 2 and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends)
        if not numbers or not 0 <= ends[0] <= ends[1] < math.inf:
            price, most = _EXAMPLES[name]
            raise ValueError(
                f"{name}={value!r}: must be a price from 0 on, or two ascending prices between which each episode "
                f"draws; use {name}={price} or {name}=(0, {most})"
            )
        return cls(float(ends[0]), float(ends[1]))

    @classmethod
    def of_prices(cls, **values: Any) -> dict[str, PriceRange]:
        """Return the ranges of the values of keywords, by name; errors as `of`."""
        return {name: cls.of(name, value) for name, value in values.items()}

    def draw(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return a price for each of ``count`` episodes, float64 (count,)."""
        if self.low == self.high:
            return np.full(count, self.low)
        lowest = self.low or self.high / 1_000
        drawn = np.exp(generator.uniform(math.log(lowest), math.log(self.high), count))
        return np.where(generator.random(count) < _FREE, 0.0, drawn) if self.low == 0 else drawn
