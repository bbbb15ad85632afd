"""The surrogate's model of a learning curve: what one training does to error, validation, FLOPs and parameters.

The error after a training is a function, in logits and logarithms, linear in the error before it and quadratic in how
much it was trained on and how much had been seen, with the number of trainings, replay and growth; so are the
validation loss and error. It is fitted by ridge regression to recorded trainings. What it leaves unexplained is drawn
from what it left unexplained of recorded trainings of about the same size, for all three together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.waiting.recordings import Recording

Array = NDArray[np.float64]

RIDGE = 1e-3
POOLS = 8  # of residuals, by size of the training
POOL_SIZE = 512  # residuals in each


@dataclass(frozen=True)
class Curve:
    """A fitted learning curve; the arrays of several can be stacked (`stacked`).

    Attributes:
        ticks: length of the stream, B.
        guess_loss: cross-entropy of the uniform guess.
        first_error: error of the untrained predictor.
        weights: float64 (terms, 3), of the outputs logit of the error, log validation loss, validation error.
        low, high: bounds of the outputs, float64 (3,): a little beyond what was recorded.
        edges: float64 (POOLS - 1,), log sizes that part the pools.
        residuals: float64 (POOLS, POOL_SIZE, 3).
        parameters: float64 (growth steps + 1,): parameters after so many growth steps.
        flops: float64 (growth steps + 1, 2): FLOPs of a training after so many, as fixed part and per mega-batch.
        replays, grows: whether such trainings were recorded.
    """

    ticks: int
    guess_loss: float
    first_error: float
    weights: Array
    low: Array
    high: Array
    edges: Array
    residuals: Array
    parameters: Array
    flops: Array
    replays: bool
    grows: bool


def logit(fraction: Array) -> Array:
    """Of error rates, kept off 0 and 1, in float64."""
    inside = np.clip(fraction, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def terms(last: Array, size: Any, seen: Any, stages: Any, replay: Any, grown: Any) -> Array:
    """What the outputs are linear in.

    Args:
        last: logit of the error before the training, (n,).
        size: mega-batches that it is made on.
        seen: mega-batches that have arrived.
        stages: trainings before it.
        replay: 1 with replay of earlier data, else 0.
        grown: growth steps so far, those before this training included.

    Returns:
        float64 (n, terms).
    """
    a, b, k, g = np.log(size), np.log(seen), np.log1p(stages), np.log1p(grown)
    first = np.equal(stages, 0).astype(np.float64)
    # Not quadratic in the error before, which is fed back at every training: that extrapolates badly.
    columns = [np.ones_like(a), a, a * a, b, b * b, a * b, last, last * a]
    columns += [first, first * a, first * a * a, k, k * a, replay, replay * a, replay * b, g, g * a]
    return np.stack(columns, -1)


def fit(recordings: Sequence[Recording], reward_on: str = "test", seed: int = 0) -> Curve:
    """Fit one curve to runs that differ in nothing but schedule and seed.

    Args:
        recordings: the runs.
        reward_on: which error, ``test``, or ``validation``: that on the validation parts of the whole stream, so that
            what is learned from the curve is not tuned on the test set.
        seed: of the choice of residuals, where there are more than the pools hold.

    Raises:
        ValueError: there are too few trainings, or the error on validation was not recorded.
    """
    if reward_on not in _ERRORS:
        raise ValueError(f"reward_on={reward_on!r}: must be 'test' or 'validation'")
    column = _ERRORS[reward_on]
    x, y, sizes, ticks_held = _examples(recordings, column)
    if len(x) < 2 * POOLS:
        raise ValueError(
            f"{len(x)} trainings in {len(recordings)} runs: a curve needs at least {2 * POOLS}; record runs with other "
            "waiting times and seeds"
        )
    # A training counts by how long its error stayed: that is its part in the CER, which the surrogate is to rank.
    root = np.sqrt(ticks_held / ticks_held.mean())[:, None]
    scale = np.maximum(np.abs(x).max(0), 1e-12)
    design = x / scale * root
    weights = np.linalg.solve(design.T @ design + RIDGE * np.eye(x.shape[1]), design.T @ (y * root)) / scale[:, None]
    residuals = y - x @ weights
    edges = np.quantile(np.log(sizes), np.arange(1, POOLS) / POOLS)
    draw = np.random.default_rng(seed)
    pools = [_pool(residuals, np.log(sizes), edges, pool, draw) for pool in range(POOLS)]
    first = recordings[0]
    parameters, flops = _costs(recordings)
    return Curve(
        ticks=first.ticks,
        guess_loss=math.log(first.classes),
        first_error=float(np.mean([_untrained(made, column) for made in recordings])),
        weights=weights,
        low=y.min(0) - 0.1,
        high=y.max(0) + 0.1,
        edges=edges,
        residuals=np.stack(pools),
        parameters=parameters,
        flops=flops,
        replays=any(made.column("replay").any() for made in recordings),
        grows=any(made.column("grow").any() for made in recordings),
    )


_ERRORS = {"test": "error", "validation": "held_out_error"}


def _untrained(made: Recording, column: str) -> float:
    """Error at tick 0: on validation that of a guess, since only trainings are scored there."""
    return made.error if column == "error" else 1 - 1 / made.classes


def _examples(recordings: Sequence[Recording], column: str) -> tuple[Array, Array, Array, Array]:
    """Terms (n, terms), outputs (n, 3), sizes (n,) and ticks until the next training (n,) of all trainings."""
    x, y, sizes, held = [], [], [], []
    for made in recordings:
        tick, replay, error = made.column("tick"), made.column("replay"), made.column(column)
        if not len(tick):
            continue
        if np.isnan(error).any():
            raise ValueError(
                f"reward_on='validation': a run of {made.learner!r} with {made.schedule!r} was made without it; run "
                "again with `alma run --record --fresh`, or use reward_on='test'"
            )
        size = np.where(replay > 0, tick, made.column("pending"))
        before = logit(np.concatenate([[_untrained(made, column)], error[:-1]]))
        stages, grown = np.arange(len(tick), dtype=np.float64), np.cumsum(made.column("grow"))
        x.append(terms(before, size, tick, stages, replay, grown))
        loss = np.log(np.maximum(made.column("validation_loss"), 1e-6))
        y.append(np.stack([logit(error), loss, made.column("validation_error")], -1))
        sizes.append(size)
        held.append(np.diff(np.append(tick, made.ticks + 1)))
    if not x:
        raise ValueError(f"no training in {len(recordings)} runs; record runs that train")
    return np.concatenate(x), np.concatenate(y), np.concatenate(sizes), np.concatenate(held)


def _pool(residuals: Array, log_sizes: Array, edges: Array, pool: int, draw: np.random.Generator) -> Array:
    """Residuals of the trainings of about one size: all of them in turn, or as many as fit, by lot."""
    inside = residuals[np.searchsorted(edges, log_sizes, side="right") == pool]
    if not len(inside):  # two edges are the same: no size falls between them
        return np.zeros((POOL_SIZE, residuals.shape[1]))
    rows = draw.permutation(len(inside))[:POOL_SIZE]
    return np.asarray(inside[np.resize(rows, POOL_SIZE)])


def _costs(recordings: Sequence[Recording]) -> tuple[Array, Array]:
    """Parameters and FLOPs by growth steps; between recorded numbers of steps the FLOPs are those of the nearest."""
    grown = np.concatenate([np.cumsum(made.column("grow")) for made in recordings]).astype(int)
    columns = {
        name: np.concatenate([made.column(name) for made in recordings]) for name in ("parameters", "flops", "tick")
    }
    sizes = np.concatenate(
        [np.where(made.column("replay") > 0, made.column("tick"), made.column("pending")) for made in recordings]
    )
    steps = np.arange(grown.max() + 1)
    known = np.unique(grown)
    parameters = np.interp(steps, known, [columns["parameters"][grown == step].mean() for step in known])
    lines = [_line(sizes[grown == step], columns["flops"][grown == step]) for step in known]
    return parameters, np.stack([np.interp(steps, known, [line[i] for line in lines]) for i in (0, 1)], -1)


def _line(sizes: Array, flops: Array) -> tuple[float, float]:
    """FLOPs as a fixed part and one per mega-batch; a training costs in proportion where only one size is known."""
    if len(np.unique(sizes)) < 2:
        return 0.0, float(flops.mean() / sizes.mean())
    slope, fixed = np.polyfit(sizes, flops, 1)
    return float(fixed), float(slope)
