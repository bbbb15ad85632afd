"""The fit of the second surrogate's model to recorded runs: ridge regressions, and a mixed model for the quality.

`agents.rl.models.training_model` has the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agents.catalogue.methods import METHODS
from agents.rl.models.regression import RIDGE, Array, logit, pooled, ridge
from agents.rl.models.repeats import Repeats, number_decisions
from agents.rl.models.training_model import (
    COLD_POOLS,
    FIRST_ERRORS,
    POOLS,
    TrainingModel,
    Trainings,
    residual_unit,
    validation_noise,
    validation_terms,
)
from agents.rl.recorded.costs import costs_of, full_pass_of, no_training
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.selection import recorded_groups

_ROUNDS = 6  # of estimating weights, spread of the residuals and spread of the quality in turn
_APART = 3  # trainings this many stages apart share their quality, but nothing else that is random
_LEAST_SPREAD = 0.02  # of a pool's residuals, in logits
_LEAST_RESIDUAL = 0.001  # in logits; the logarithms of smaller ones would count most


@dataclass(frozen=True)
class RunExamples:
    """The n trainings of a run, as examples of the regressions; several fits can share them.

    Attributes:
        recording: the run.
        untrained: error of the untrained predictor.
        inputs: what the error after each training depends on.
        outputs: the logit of the error, the logarithm of the validation loss, and the validation error, (n, 3).
        cold: which trainings start from a random initialisation, (n,).
        held: ticks from each training to the next one, (n,).
    """

    recording: Recording
    untrained: float
    inputs: Trainings
    outputs: Array
    cold: NDArray[np.bool_]
    held: Array


def fit_trainings(recordings: Sequence[Recording], reward_on: str = "test") -> TrainingModel:
    """Fit a model to runs that differ only in schedule and seed.

    Args:
        recordings: the runs.
        reward_on: ``test``: the error on the test set; ``validation``: the error on the validation parts of the whole
            stream, so that a policy learned on the model is not tuned on the test set.

    Raises:
        ValueError: there are too few trainings, or the validation error was not recorded.
    """
    return fit_examples([examples_of(recording, reward_on) for recording in recordings])


def fit_examples(runs: Sequence[RunExamples]) -> TrainingModel:
    """Fit a model to examples that differ only in schedule and seed; ValueError if there are too few."""
    recordings = [run.recording for run in runs]
    if not any(len(run.cold) for run in runs):
        raise no_training(recordings)
    inputs, outputs, cold, held, segments = _joined(runs)
    first_errors = np.array(list({run.recording.seed: run.untrained for run in runs}.values()))
    warm = ~cold
    if warm.sum() < 2 * POOLS or cold.sum() < 2:
        raise ValueError(
            f"{cold.sum()} trainings from a random initialisation and {warm.sum()} others in {len(recordings)} runs: "
            f"a model needs at least 2 and {2 * POOLS}; record runs with other schedules and seeds"
        )
    generator = np.random.default_rng(0)  # chooses among the residuals if there are more than the pools hold
    after = outputs[:, 0]
    # A training is weighted by the square root of the ticks that its error stays: by more than its noise justifies,
    # because its weight in the CER is the number of ticks.
    edges = _quantiles(inputs.last[warm], POOLS)
    pools = np.searchsorted(edges, inputs.last[warm], side="right")
    decisions = number_decisions(
        np.stack([run.inputs.tick, run.inputs.size, run.inputs.grows, run.cold], -1) for run in runs
    )
    seeds = np.repeat([recording.seed for recording in recordings], [len(run.cold) for run in runs])
    repeats = Repeats.of(decisions[warm], seeds[warm])
    terms, parts = _by_growth(inputs.of(warm))
    weights, effects, shares, quality = _mixed(terms, after[warm], np.sqrt(held[warm]), segments[warm], pools, repeats)
    cold_terms = inputs.of(cold).cold()
    cold_weights = ridge(cold_terms, after[cold], np.ones(cold.sum()))
    validation = validation_terms(after, inputs.size)
    noise = validation_noise(after, inputs.size)
    columns = zip(outputs[:, 1:].T, noise.T, strict=True)
    validation_weights = np.stack([ridge(validation, column, unit**-2) for column, unit in columns], -1)
    residuals = np.empty_like(outputs)
    residuals[warm, 0] = after[warm] - terms @ weights - effects
    # The quality of a segment follows its trainings, most of all where they are few and large: _widening corrects the
    # mean of what is missing in the residuals, and not how it depends on the size.
    power = _power(residuals[warm, 0] / np.sqrt(1 - shares), inputs.size[warm], pools, np.sqrt(held[warm]))
    residuals[warm, 0] /= residual_unit(inputs.size[warm], power)
    residuals[cold, 0] = after[cold] - cold_terms @ cold_weights
    residuals[:, 1:] = (outputs[:, 1:] - validation @ validation_weights) / noise
    widening = _widening(recordings)
    residuals[:, 0] *= widening
    sizes = np.log(inputs.size[cold])
    # Most runs of a seed begin with the same training: it counts once, or else all pools would begin at its size.
    cold_edges = _quantiles(np.unique(np.stack([sizes, after[cold]]), axis=1)[0], COLD_POOLS)
    parameters, flops = costs_of(recordings)
    first = recordings[0]
    return TrainingModel(
        ticks=first.ticks,
        guess_loss=math.log(first.classes),
        first_errors=np.resize(generator.permutation(first_errors), FIRST_ERRORS),
        warm=np.resize(weights, (2, len(weights) // parts)),  # of a learner that never grew, the same twice
        cold=cold_weights,
        validation=validation_weights,
        low=float(after.min() - 0.1),
        high=float(after.max() + 0.1),
        warm_edges=edges,
        warm_residuals=pooled(residuals[warm], pools, POOLS, generator),
        warm_power=power,
        cold_edges=cold_edges,
        cold_residuals=pooled(residuals[cold], np.searchsorted(cold_edges, sizes, side="right"), COLD_POOLS, generator),
        quality=widening * quality,
        parameters=parameters,
        flops=flops,
        pass_flops=full_pass_of(recordings),
        replays=any(recording.repeats.any() for recording in recordings),
        restarts=any(recording.column("restart").any() for recording in recordings),
        grows=any(recording.column("grow").any() for recording in recordings),
        free_growth=(method := METHODS.get(first.learner)) is not None and method.free_growth,
        untrained_growth=_untrained_growth(first),
    )


def _by_growth(trainings: Trainings) -> tuple[Array, int]:
    """Return the terms of warm trainings before the first growth step, beside those of the others, and 2.

    If no learner has grown, return the terms of all trainings, and 1.
    """
    terms, grown = trainings.warm(), trainings.grown[:, None] > 0
    return (np.concatenate([terms * ~grown, terms * grown], 1), 2) if grown.any() else (terms, 1)


def _untrained_growth(recording: Recording) -> bool:
    """Return whether growth adds untrained members and freezes the others: a restart does the same to these members."""
    method = METHODS.get(recording.learner)
    return method is not None and method.free_growth and not recording.run_config.agent.record.get("warm_start")


def trainings_of(recording: Recording, errors: Array, untrained: float) -> tuple[Trainings, NDArray[np.bool_]]:
    """Return the inputs of a run's trainings, and which of them are cold.

    Args:
        recording: the run.
        errors: error after each training, on the data of interest.
        untrained: error of the untrained predictor on these data.
    """
    size, restart, grow = recording.sizes, recording.column("restart") > 0, recording.column("grow")
    cold = restart & ~((grow > 0) & _untrained_growth(recording))
    cold[:1] = True
    before = np.concatenate([[0.0], np.cumsum(size)])[:-1]
    number = np.arange(len(size))
    start = np.maximum.accumulate(np.where(cold, number, 0))
    inputs = Trainings(
        last=logit(np.append(untrained, errors)[:-1]),
        size=size,
        tick=recording.column("tick"),
        pending=recording.column("pending"),
        trained=number - start,
        processed=before - before[start],
        grown=np.cumsum(grow),
        grows=grow,
    )
    return inputs, cold


def examples_of(recording: Recording, reward_on: str = "test") -> RunExamples:
    """Return the trainings of a run as examples; ValueError if the validation error was not recorded."""
    errors, untrained = recording.errors_on(reward_on)
    inputs, cold = trainings_of(recording, errors, untrained)
    outputs = np.stack([logit(errors), recording.validation_log_losses, recording.column("validation_error")], -1)
    return RunExamples(recording, untrained, inputs, outputs, cold, recording.held)


def _joined(runs: Sequence[RunExamples]) -> tuple[Trainings, Array, NDArray[np.bool_], Array, NDArray[np.int64]]:
    """Return inputs, outputs (n, 3), cold (n,), ticks until the next training (n,) and segments (n,) of all runs."""
    inputs = Trainings(
        *(np.concatenate(values) for values in zip(*(vars(run.inputs).values() for run in runs), strict=True))
    )
    outputs, cold, held = (np.concatenate([getattr(run, name) for run in runs]) for name in ("outputs", "cold", "held"))
    return inputs, outputs, cold, held, np.cumsum(cold)  # the first training of each run is cold


def _mixed(
    terms: Array,
    outputs: Array,
    weights: Array,
    segments: NDArray[np.int64],
    pools: NDArray[np.int64],
    repeats: Repeats,
) -> tuple[Array, Array, Array, float]:
    """Fit a linear mixed model: outputs = terms · weights + quality of the segment + residual.

    The spread of the residuals differs by pool. The variance of the quality is the mean product of two residuals of a
    segment, `_APART` stages apart, each without what all seeds with the same decisions have in common. This part is the
    error of the regression for these decisions, and no luck: as luck, it would spread the runs too far, and its
    schedules would count as good or bad seeds, to which the regression need not be fitted. The qualities are eliminated
    from the ridge regression (a Schur complement). They shrink as if all pools had the mean variance of the residuals.
    With the variance of each pool they would shrink less, and simulations of held-out runs would be no better.

    Returns:
        weights (terms,), the quality of each training's segment (n,), the weight of the training in this quality (n,),
        from 0 to 1, and the standard deviation of the quality. With a weight of h, the variance of a residual is
        1 - h times that of the luck of a training.
    """
    scale = np.maximum(np.abs(terms).max(0), 1e-12)
    design, (_, segment) = terms / scale, np.unique(segments, return_inverse=True)
    count = segment.max() + 1
    spread, ratio = np.ones(POOLS), 3.0  # of the variances of residual and quality
    filled = np.flatnonzero(np.bincount(pools, minlength=POOLS))  # equal edges leave a pool empty
    later = np.arange(_APART, len(outputs))
    earlier = later - _APART
    same = segment[earlier] == segment[later]
    repeated = same & repeats.counted[later]
    luck = repeats.luck if repeated.any() else np.asarray  # the latter where no two seeds made the same decisions
    pairs = repeated if repeated.any() else same
    later, earlier = later[pairs], earlier[pairs]
    for _ in range(_ROUNDS):
        trust = weights / spread[pools] ** 2
        trust = trust / trust.mean()
        total = np.bincount(segment, trust, count) + ratio
        weighted = design * trust[:, None]
        sums = np.stack([np.bincount(segment, column, count) for column in weighted.T], -1)
        right = np.bincount(segment, trust * outputs, count)
        left = weighted.T @ design + RIDGE * np.eye(design.shape[1]) - sums.T @ (sums / total[:, None])
        solved = np.linalg.solve(left, weighted.T @ outputs - sums.T @ (right / total))
        effects = ((right - sums @ solved) / total)[segment]
        rest = outputs - design @ solved
        noise = rest - effects
        spread[filled] = [max(noise[pools == pool].std(), _LEAST_SPREAD) for pool in filled]
        own = luck(rest)
        precision = 1 / (spread[pools[earlier]] * spread[pools[later]])
        variance = np.average(own[earlier] * own[later], weights=precision) if len(later) else 0.0
        variance = max(variance, 1e-5)
        ratio = float(np.mean(spread[pools] ** 2)) / variance
    return solved / scale, effects, trust / total[segment], math.sqrt(variance)


def _power(residuals: Array, size: Array, pools: NDArray[np.int64], weights: Array) -> float:
    """Return how fast residuals fall with the size of the training, inside of the pools: as size ** -power, or 0.

    Residuals that grow with the size are errors of the regression for few and large trainings, and no luck.
    """
    logs = np.stack([np.log(size), np.log(np.hypot(residuals, _LEAST_RESIDUAL))])
    total = np.bincount(pools, weights, POOLS)
    means = np.stack([np.bincount(pools, weights * row, POOLS) for row in logs]) / np.maximum(total, 1e-12)
    x, y = logs - means[:, pools]
    return max(-float(weights @ (x * y)) / max(float(weights @ (x * x)), 1e-12), 0.0)


def _widening(recordings: Sequence[Recording]) -> float:
    """Return the spread of the logits of a new seed, divided by the spread of the residuals of the fit.

    Runs of one seed share most of their luck, so that a fit is a mean over the seeds, not over the runs. With S seeds,
    the residuals have 1 - 1/S of the variance of the luck, because the fit follows these seeds. A new seed differs from
    the fit by 1 + 1/S of this variance, because the fit contains the luck of the S seeds. A seed counts by its
    trainings, as in the regressions: S is Kish's effective number.
    """
    trainings: dict[int, int] = {}
    for recording in recordings:
        trainings[recording.seed] = trainings.get(recording.seed, 0) + len(recording.trainings)
    counts = np.array(list(trainings.values()), np.float64)
    seeds = max(counts.sum() ** 2 / (counts**2).sum(), 2.0)  # one seed tells nothing of the spread over seeds
    return math.sqrt((seeds + 1) / (seeds - 1))


def _quantiles(values: Array, pools: int) -> Array:
    return np.quantile(values, np.arange(1, pools) / pools)


def models_for(
    stream: str, learner: str, width: int | Sequence[int] | None, recorded: str | Path | None, reward_on: str = "test"
) -> list[TrainingModel]:
    """Return the models of one learner on a stream, one per width, fitted to recorded runs.

    The arguments and errors are those of `agents.rl.curves_for`. By default the runs are those that come with the
    package for this surrogate, or else those for the first one.
    """
    return [
        fit_trainings(runs, reward_on) for runs in recorded_groups(stream, learner, width, recorded, decisions=True)
    ]
