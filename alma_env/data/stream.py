"""The stream: a data set cut into mega-batches D_1..D_B, each split 90/10 (ALMA paper, section 3).

The partition is a function of the number of examples, B and the seed. It depends on no method, waiting time or replay
setting, and does not use global random state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alma_env.data.datasets import CopiedByReference, DataSet
from alma_env.data.permutation import Indices, permutation
from alma_env.errors import ArgumentTypeError
from alma_env.integers import require_integer, require_seed

Part = dict[str, NDArray[Any]]

# Keys of the permutations of this module.
_ORDER = (0x414C4D41, 0)
_SPLIT = (0x414C4D41, 1)


def partition(
    n: int, ticks: int, seed: int, *, valid_fraction: float = 0.1, scheme: str = "alma"
) -> list[tuple[Indices, Indices]]:
    """Return the indices (train, valid), int64, of each of the `ticks` mega-batches of a set of `n` examples.

    Each mega-batch has floor(n / ticks) examples, drawn without regard to class; the remainder is left out. Of the m
    examples of a mega-batch, floor(valid_fraction * m) examples, chosen by (seed, tick), are `valid`. Both parts keep
    the order of the mega-batch.

    Args:
        n: number of examples.
        ticks: number of mega-batches B.
        seed: seed of the partition.
        valid_fraction: fraction of the examples of a mega-batch in its valid part.
        scheme: "alma" permutes the examples by seed and cuts the permutation into consecutive parts. "continuum" uses
            the parts of `continuum.scenarios.ALMA` with nb_megabatches=ticks and random_seed=seed, with ascending
            indices, as continuum returns them. If ticks does not divide n, continuum's first n mod ticks parts have
            one more example; here each of them loses its last example in the permutation.

    Raises:
        ValueError: no such partition exists.
        TypeError: an argument is not an integer, or the fraction is not a number.

    >>> for train, valid in partition(20, ticks=2, seed=0):
    ...     print(train, valid)
    [11  3 17  1  2 13  0 10 14] [16]
    [ 6 12 15  5  4 18  7 19  8] [9]
    """
    n, ticks, seed = require_integer(n, "n"), require_integer(ticks, "ticks"), require_seed(seed)
    fraction = checked_fraction(n, ticks, valid_fraction)
    size = n // ticks
    if scheme == "alma":
        megabatches = permutation(n, seed, _ORDER)[: ticks * size].reshape(ticks, size)
    elif scheme == "continuum":
        if seed >= 2**32:
            raise ValueError(f"seed={seed}: a seed of continuum must be below 2**32; choose a smaller one")
        order = np.random.RandomState(seed).permutation(n)
        chunks = np.array_split(order, ticks)
        megabatches = np.sort(np.stack([chunk[:size] for chunk in chunks]), axis=1)
    else:
        raise ValueError(f"scheme={scheme!r}: must be 'alma' or 'continuum'")
    return [_split(megabatch, fraction, seed, t) for t, megabatch in enumerate(megabatches, start=1)]


def _split(megabatch: Indices, fraction: Fraction, seed: int, t: int) -> tuple[Indices, Indices]:
    valid = np.zeros(len(megabatch), dtype=bool)
    valid[permutation(len(megabatch), seed, (*_SPLIT, t))[: int(fraction * len(megabatch))]] = True
    parts = megabatch[~valid].astype(np.int64), megabatch[valid].astype(np.int64)
    for part in parts:
        part.setflags(write=False)
    return parts


def as_written(number: Any) -> float:
    """Return a real number as a float; float32(0.29) becomes 0.29, and not the nearest double of the float32."""
    return float(str(number)) if isinstance(number, np.floating) else float(number)


def checked_fraction(n: int, ticks: int, valid_fraction: Any) -> Fraction:
    """Return the fraction of a mega-batch of a stream of n examples that is its valid part.

    Raises:
        TypeError: the fraction is not a number.
        ValueError: there is no such fraction, or a mega-batch would have no example or no valid part.
    """
    if isinstance(valid_fraction, bool) or not isinstance(valid_fraction, Real):
        raise ArgumentTypeError(f"valid_fraction={valid_fraction!r}: must be a number, such as valid_fraction=0.1")
    # The decimal number as written, not the nearest double: floor(0.29 * 100) must be 29.
    written = as_written(valid_fraction)
    if not 0 < written < 1:
        raise ValueError(
            f"valid_fraction={valid_fraction}: must lie between 0 and 1, both excluded; use valid_fraction=0.1"
        )
    fraction = Fraction(repr(written))
    if n < 1:
        raise ValueError(f"n={n}: a stream needs at least one example")
    if ticks < 1:
        raise ValueError(f"ticks={ticks}: a stream has at least 1 mega-batch; use ticks=20, or leave ticks out")
    smallest = -(-1 // fraction)  # fewest examples of a mega-batch with one valid example; train then has one, too
    largest = n // smallest
    remedy = (
        f"choose at most {largest}, on the command line --set ticks={largest}"
        if largest
        else "pass more examples or a larger valid_fraction"
    )
    if ticks > n:
        raise ValueError(f"ticks={ticks}: {n} examples are too few for {ticks} mega-batches; {remedy}")
    if ticks > largest:
        raise ValueError(
            f"ticks={ticks}: a mega-batch of {n // ticks} examples has no valid part "
            f"(valid_fraction={valid_fraction} needs at least {smallest}); {remedy}"
        )
    return fraction


@dataclass(frozen=True)
class Stream(CopiedByReference):
    """The mega-batches of a data set, for ticks t = 1..B; see `partition` for the arguments.

    A stream stores indices. A mega-batch is copied out of the data set at each request.
    """

    data: DataSet
    ticks: int
    seed: int
    valid_fraction: float = 0.1
    scheme: str = "alma"
    parts: tuple[tuple[Indices, Indices], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n, fraction = len(self.data.train_y), self.valid_fraction
        parts = partition(n, self.ticks, self.seed, valid_fraction=fraction, scheme=self.scheme)
        object.__setattr__(self, "parts", tuple(parts))

    def __len__(self) -> int:
        return self.ticks

    @property
    def test(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The hidden test set (x, y)."""
        return self.data.test_x, self.data.test_y

    @cached_property
    def validation(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The validation parts of all mega-batches, concatenated (x, y)."""
        rows = np.concatenate([valid for _, valid in self.parts])
        return self.data.train_x[rows], self.data.train_y[rows]

    def indices(self, t: int) -> tuple[Indices, Indices]:
        """Return the rows (train, valid) of mega-batch t = 1..B in the data set's train part: read-only int64."""
        t = require_integer(t, "t")
        if not 1 <= t <= self.ticks:
            raise IndexError(f"t={t}: the mega-batches of this stream are 1..{self.ticks}")
        return self.parts[t - 1]

    def megabatch(self, t: int) -> dict[str, Part]:
        """Return {"train": {"x", "y"}, "valid": {"x", "y"}} of mega-batch t = 1..B as new arrays."""
        return {
            name: {"x": self.data.train_x[rows], "y": self.data.train_y[rows]}
            for name, rows in zip(("train", "valid"), self.indices(t), strict=True)
        }

    def __reduce__(self) -> tuple[type[Stream], tuple[Any, ...]]:
        return Stream, (self.data, self.ticks, self.seed, self.valid_fraction, self.scheme)
