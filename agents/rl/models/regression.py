"""Ridge regressions on error rates, and the pools from which simulations draw their residuals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

RIDGE = 1e-3
POOL_SIZE = 512  # residuals in each pool


def logit(fraction: Array) -> Array:
    """Return the logit of error rates, clipped to [1e-4, 1 - 1e-4]."""
    inside = np.clip(fraction, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def logistic(logits: Array) -> Array:
    """Return the error rates of logits, float64; the inverse of `logit`."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def ridge(terms: Array, outputs: Array, weights: Array) -> Array:
    """Return the weights of a linear model, float64 (terms,) or (terms, outputs), from weighted examples."""
    scale = np.maximum(np.abs(terms).max(0), 1e-12)
    design, weights = terms / scale, weights / weights.mean()
    weighted = design * weights[:, None]
    solved = np.linalg.solve(weighted.T @ design + RIDGE * np.eye(design.shape[1]), weighted.T @ outputs)
    return np.asarray(solved / (scale if outputs.ndim == 1 else scale[:, None]))


def pooled(residuals: Array, pools: NDArray[np.int64], count: int, generator: np.random.Generator) -> Array:
    """Return the residuals of each pool, float64 (count, POOL_SIZE, outputs): all, repeated, or a random choice.

    A pool without residuals has those of the nearest one.
    """
    table = np.zeros((count, POOL_SIZE, residuals.shape[1]))
    filled = np.unique(pools)
    for pool in filled:
        inside = residuals[pools == pool]
        table[pool] = inside[np.resize(generator.permutation(len(inside))[:POOL_SIZE], POOL_SIZE)]
    nearest = np.abs(filled - np.arange(count)[:, None]).argmin(1)
    return np.asarray(table[filled[nearest]])
