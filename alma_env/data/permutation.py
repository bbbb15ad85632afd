"""Seeded permutations, which depend on their arguments only and never on global random state.

The numbers come directly from a bit generator, because NumPy guarantees that their sequence never changes. NumPy gives
no such guarantee for `Generator.permutation`.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alma_env.errors import ArgumentTypeError

Indices = NDArray[np.int64]


def permutation(n: int, seed: int, key: tuple[int, ...]) -> Indices:
    """Return a uniformly random permutation of 0..n-1.

    Different keys (spawn keys of NumPy's `SeedSequence`) give independent permutations for one seed.
    """
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))
    return np.argsort(bits.random_raw(n), kind="stable")


def require_integer(value: Any, name: str) -> int:
    """Return `value` as an int; raise a TypeError that names the argument if `value` is not an integer."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        example = int(value) if isinstance(value, float) and value.is_integer() else 1
        raise ArgumentTypeError(f"{name}={value!r}: must be an integer, such as {name}={example}") from None


def require_seed(seed: int) -> int:
    """Return the seed of a stream as an int; raise a TypeError if it is no integer, a ValueError if it is negative."""
    number = require_integer(seed, "seed")
    if number < 0:
        raise ValueError(f"seed={number}: the seed of a stream must be a non-negative integer; use seed=0")
    return number
