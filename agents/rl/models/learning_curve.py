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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.recordings import Recording, groups, load, shipped_runs

Array = NDArray[np.float64]

RIDGE = 1e-3
SINGLE = "sm"  # the learner from which the others grow
POOLS = 8  # pools of residuals, by size of the training
POOL_SIZE = 512  # residuals in each


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


def logit(fraction: Array) -> Array:
    """Return the logit of error rates, clipped to [1e-4, 1 - 1e-4]."""
    inside = np.clip(fraction, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def logistic(logits: Array) -> Array:
    """Return the error rates of logits, float64; the inverse of `logit`."""
    return np.asarray(1 / (1 + np.exp(-logits)))


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
        replays=any((recording.sizes > recording.column("pending")).any() for recording in recordings),
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


def recorded_groups(
    stream: str,
    learner: str,
    width: int | Sequence[int] | None,
    recorded: str | Path | None,
    *,
    decisions: bool = False,
) -> list[list[Recording]]:
    """Return the recorded runs of one learner on a stream, one list per width; see `curves_for` and `shipped_runs`.

    With ``decisions``, the runs of a learner that grows are followed by those of the single model from which it grows.
    """
    if recorded is None:
        file, all_runs = "the package", shipped_runs(stream, decisions=decisions)
    else:
        file, all_runs = Path(recorded).name, load(Path(recorded))
    runs_of_stream = [one for one in all_runs if one.env == stream]
    found = groups(one for one in runs_of_stream if one.learner == learner)
    if not found:
        known = "; ".join(sorted({f"{one.env}: {one.learner}" for one in all_runs}))
        raise ValueError(
            f"stream={stream!r}, learner={learner!r}: no runs in {file}, which has {known or 'none'}; name one of "
            "these learners, or record such runs, and write them to a file with alma surrogate fit RUNS --out FILE.npz"
        )
    by_width = sorted(found, key=lambda key: (key[2] or 0, key[3]))  # an agent of the user may have no width
    recorded_widths = [key[2] for key in by_width]
    widths = recorded_widths if width is None else np.atleast_1d(width).tolist()
    for wanted in widths:
        if recorded_widths.count(wanted) != 1:
            what = "runs with several settings" if wanted in recorded_widths else "no runs"
            raise ValueError(
                f"learner={learner!r}, width={wanted!r}: {what} in {file} (its widths are "
                f"{recorded_widths}); record such runs, and write them to "
                "a file with alma surrogate fit RUNS --out FILE.npz"
            )
    if not widths:
        raise ValueError(
            f"width={width!r}: must be at least one width; leave it out for all of {file}, {recorded_widths}"
        )
    singles = runs_of_stream if decisions else []
    return [[*found[key], *without_growth(found[key], singles)] for key in by_width if key[2] in widths]


def recorded_learners(stream: str, recorded: Path | None) -> set[str]:
    """Return the ids of the learners that have recorded runs on a stream, with all decisions."""
    runs = load(recorded) if recorded else shipped_runs(stream, decisions=True)
    return {one.learner for one in runs if one.env == stream}


def without_growth(runs: Sequence[Recording], recorded: Sequence[Recording]) -> list[Recording]:
    """Return the recorded runs of the single model from which a learner grows, as runs of this learner.

    They are its runs without growth, up to rounding.

    Args:
        runs: of the learner, with one width; if it never grows in them, none is returned, and none that they have.
        recorded: runs of the same stream.
    """
    if not any(one.column("grow").any() for one in runs):
        return []
    first = runs[0]
    own = {(one.schedule, one.seed) for one in runs}
    return [
        replace(one, learner=first.learner, settings=first.settings, schedule=f"{one.schedule}, growth never")
        for one in recorded
        if one.learner == SINGLE
        and _start_of(one) == _start_of(first)
        and (f"{one.schedule}, growth never", one.seed) not in own
    ]


def _start_of(run: Recording) -> tuple[Any, ...]:
    """Return what the runs of a learner without growth share with those of the single model."""
    agent = run.run_config.agent
    return run.width, run.parameters, run.run_config.protocol, agent.stage, bool(agent.record.get("from_scratch"))


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
        # At the first training a decision to replay finds nothing to repeat, and has no effect.
        x.append(terms(before, size, tick, stages, size > recording.column("pending"), grown))
        loss = np.log(np.maximum(recording.column("validation_loss"), 1e-6))
        y.append(np.stack([logit(error), loss, recording.column("validation_error")], -1))
        sizes.append(size)
        held.append(np.diff(np.append(tick, recording.ticks + 1)))
    if not x:
        raise _no_training(recordings)
    return np.concatenate(x), np.concatenate(y), np.concatenate(sizes), np.concatenate(held)


def _no_training(recordings: Sequence[Recording]) -> ValueError:
    return ValueError(f"no training in {len(recordings)} runs; record runs that train")


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


def costs_of(recordings: Sequence[Recording]) -> tuple[Array, Array]:
    """Return parameters and FLOPs by number of growth steps, interpolated between the recorded numbers.

    Raises:
        ValueError: no run trains.
    """
    if not any(len(recording.trainings) for recording in recordings):
        raise _no_training(recordings)
    grown = np.concatenate([np.cumsum(recording.column("grow")) for recording in recordings]).astype(int)
    sizes = np.concatenate([recording.sizes for recording in recordings])
    counts, flops = (
        np.concatenate([recording.column(name) for recording in recordings]) for name in ("parameters", "flops")
    )
    steps = np.arange(grown.max() + 1)
    known = np.unique(grown)
    parameters = np.interp(steps, known, [counts[grown == step].mean() for step in known])
    lines = [_line(sizes[grown == step], flops[grown == step]) for step in known]
    return parameters, np.stack([np.interp(steps, known, [line[i] for line in lines]) for i in (0, 1)], -1)


def full_pass_of(recordings: Sequence[Recording]) -> float:
    """Return the FLOPs of a full pass: those of a training on D_1, the mean over the runs, for each mega-batch.

    With patience, later trainings differ in length, and `agents.rl.environments.full_pass` measures D_1, too. If no run
    trains at tick 1, the result is computed from the costs of the trainings without growth.
    """
    on_first = [run.column("flops")[0] for run in recordings if (run.column("tick")[:1] == 1).any()]
    one = np.mean(on_first) if on_first else costs_of(recordings)[1][0].sum()
    return float(one) * recordings[0].ticks


def _line(sizes: Array, flops: Array) -> tuple[float, float]:
    """Return FLOPs as (fixed part, per mega-batch); the fixed part is 0 if only one size was recorded."""
    if len(np.unique(sizes)) < 2:
        return 0.0, float(flops.mean() / sizes.mean())
    slope, fixed = np.polyfit(sizes, flops, 1)
    return float(fixed), float(slope)
