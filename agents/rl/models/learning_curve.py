"""The surrogate's model of a learning curve: the effect of one training on error, validation, FLOPs and parameters.

The model has three outputs: the logit of the error after a training, the logarithm of the validation loss, and the
validation error. Each output is linear in the logit of the error before the training, quadratic in the logarithms of
the number of mega-batches that it trains on and of the number that have arrived, and has terms for the number of
trainings, for replay and for growth (`terms`). Ridge regression fits the model to recorded trainings. A simulated
training adds the residuals of one recorded training of about the same size to all three outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.rl.models.regression import Array, logit, pooled, ridge
from agents.rl.recorded.costs import costs_of, no_training
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.selection import recorded_groups

POOLS = 8  # pools of residuals, by size of the training


@dataclass(frozen=True)
class Curve:
    """A fitted learning curve of streams with ``ticks`` mega-batches.

    Attributes:
        guess_loss: cross-entropy of the uniform guess.
        first_error: error of the untrained predictor.
        weights: float64 (terms, 3); the outputs are logit of the error, log validation loss, validation error.
        low, high: bounds of the outputs, float64 (3,): 0.1 below the lowest and 0.1 above the highest recorded value.
        edges: float64 (POOLS - 1,), log sizes at which one pool ends and the next pool starts.
        residuals: float64 (POOLS, POOL_SIZE, 3).
        parameters: float64 (growth steps + 1,): parameters by number of growth steps.
        flops: float64 (growth steps + 1, 2): FLOPs of a training by number of growth steps: fixed part, per mega-batch.
        replays, grows: whether trainings with replay, with growth were recorded.
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


def terms(last: Array, size: Any, seen: Any, stages: Any, replay: Any, grown: Any) -> Array:
    """Return the terms of the regression, float64 (n, terms); the outputs are linear in them.

    Args:
        last: logit of the error before the training, (n,).
        size: mega-batches that it trains on.
        seen: mega-batches that have arrived.
        stages: trainings before this training.
        replay: 1 if it trains on earlier data, too, else 0.
        grown: growth steps so far, including the one before this training.
    """
    a, b, k, g = np.log(size), np.log(seen), np.log1p(stages), np.log1p(grown)
    first = np.equal(stages, 0).astype(np.float64)
    # The error before is fed back at every training. It has no square, because a square extrapolates badly.
    columns = [np.ones_like(a), a, a * a, b, b * b, a * b, last, last * a]
    columns += [first, first * a, first * a * a, k, k * a, replay, replay * a, replay * b, g, g * a]
    return np.stack(columns, -1)


def fit(recordings: Sequence[Recording], reward_on: str = "test") -> Curve:
    """Fit one curve to runs that differ only in schedule and seed.

    Args:
        recordings: the runs.
        reward_on: ``test``: the error on the test set; ``validation``: the error on the validation parts of the whole
            stream, so that a policy learned on the curve is not tuned on the test set.

    Raises:
        ValueError: there are too few trainings, the validation error was not recorded, or a run replays a part of the
            earlier data or restarts.
    """
    for recording in recordings:
        if recording.explores:
            raise ValueError(
                f"a run of {recording.learner!r} with {recording.schedule!r}: it replays a part of the data, or "
                "restarts, which this surrogate cannot do; record runs whose replay is none or all"
            )
    x, y, sizes, ticks_held = _examples(recordings, reward_on)
    if len(x) < 2 * POOLS:
        raise ValueError(
            f"{len(x)} trainings in {len(recordings)} runs: a curve needs at least {2 * POOLS}; record runs with other "
            "waiting times and seeds"
        )
    # A training is weighted by the number of ticks that its error stays, which is its weight in the CER.
    weights = ridge(x, y, ticks_held)
    residuals = y - x @ weights
    edges = np.quantile(np.log(sizes), np.arange(1, POOLS) / POOLS)
    generator = np.random.default_rng(0)  # chooses among the residuals if there are more than the pools hold
    pools = pooled(residuals, np.searchsorted(edges, np.log(sizes), side="right"), POOLS, generator)
    first = recordings[0]
    parameters, flops = costs_of(recordings)
    return Curve(
        ticks=first.ticks,
        guess_loss=math.log(first.classes),
        first_error=float(np.mean([recording.errors_on(reward_on)[1] for recording in recordings])),
        weights=weights,
        low=y.min(0) - 0.1,
        high=y.max(0) + 0.1,
        edges=edges,
        residuals=pools,
        parameters=parameters,
        flops=flops,
        replays=any(recording.repeats.any() for recording in recordings),
        grows=any(recording.column("grow").any() for recording in recordings),
    )


def curves_for(
    stream: str, learner: str, width: int | Sequence[int] | None, recorded: str | Path | None, reward_on: str = "test"
) -> list[Curve]:
    """Return the curves of one learner on a stream, one per width, fitted to recorded runs.

    Args:
        stream: id of the stream's environment.
        learner: id of the learner.
        width: one or several widths of the network; None: all recorded widths.
        recorded: file of recorded runs; None: the runs that come with the package, see `shipped_runs`. Runs that replay
            a part of the earlier data, or restart, are left out: they are for the second surrogate.
        reward_on: ``test`` or ``validation``, see `fit`.

    Raises:
        ValueError: no such runs were recorded, or runs of one width differ in more than schedule and seed.
    """
    found = recorded_groups(stream, learner, width, recorded)
    return [fit([one for one in runs if not one.explores] or runs, reward_on) for runs in found]


def _examples(recordings: Sequence[Recording], reward_on: str) -> tuple[Array, Array, Array, Array]:
    """Return terms (n, terms), outputs (n, 3), sizes (n,) and ticks until the next training (n,) of all trainings."""
    x, y, sizes, held = [], [], [], []
    for recording in recordings:
        error, untrained = recording.errors_on(reward_on)
        tick, size = recording.column("tick"), recording.sizes
        if not len(tick):
            continue
        before = logit(np.concatenate([[untrained], error[:-1]]))
        stages, grown = np.arange(len(tick), dtype=np.float64), np.cumsum(recording.column("grow"))
        x.append(terms(before, size, tick, stages, recording.repeats, grown))
        y.append(np.stack([logit(error), recording.validation_log_losses, recording.column("validation_error")], -1))
        sizes.append(size)
        held.append(recording.held)
    if not x:
        raise no_training(recordings)
    return np.concatenate(x), np.concatenate(y), np.concatenate(sizes), np.concatenate(held)
