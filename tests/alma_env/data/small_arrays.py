"""Small arrays of random images with labels, and a data set of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from alma_env import DataSet, from_arrays


def images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def labels(n: int, classes: int = 3) -> np.ndarray:
    return np.arange(n) % classes


def small(**options: Any) -> DataSet:
    return from_arrays((images(20, 2, 4, 4), labels(20)), (images(10, 2, 4, 4, seed=1), labels(10)), **options)


X, Y = images(6, 1, 2, 2), np.arange(6) % 2
RGB = images(6, 3, 2, 2)
