"""Seeded permutations, which depend on their arguments only and never on global random state.

The numbers come directly from a bit generator, because NumPy guarantees that their sequence never changes. NumPy gives
no such guarantee for `Generator.permutation`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def permutation(n: int, seed: int, key: tuple[int, ...]) -> Indices:
    """Return a uniformly random permutation of 0..n-1.

    Different keys (spawn keys of NumPy's `SeedSequence`) give independent permutations for one seed.
    """
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))
    return np.argsort(bits.random_raw(n), kind="stable")
