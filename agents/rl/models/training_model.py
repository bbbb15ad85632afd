"""The second surrogate's model of one training: its effect on error, validation, FLOPs and parameters.

The state of a learner is the logit of its error. Two regressions predict the logit after a training: one for trainings
that start from a random initialisation (*cold*: the first training, and restarts), one for the others (*warm*). The
latter has other weights from the first growth step on, because trainings of one network say little of those of several.
A cold training draws a residual, which depends on its size, and a *quality*: a number that is added to the logit after
each later warm training, until the next restart. A warm training also draws the residual of a recorded training that
started from about the same error, because residuals are larger where errors are. The residual becomes smaller with the
data, as a power of the number of mega-batches (`residual_unit`). A third regression predicts the validation loss and
the validation error from the logit after the training. Their residuals are those of a mean over the validation
examples, and become smaller with the data (`validation_noise`).

Quality and residuals of the logit are as wide as the luck of a seed that was not recorded: wider than the residuals of
the fit, which knows few seeds (`agents.rl.models.training_fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.regression import Array, logistic

POOLS = 8  # pools of residuals of warm trainings, by the error before
COLD_POOLS = 6  # pools of residuals of cold trainings, by size
FIRST_ERRORS = 64


@dataclass(frozen=True)
class Trainings:
    """Trainings as arrays (n,), the input of the model.

    Attributes:
        last: logit of the error before the training.
        size: mega-batches that it trains on.
        tick: mega-batches that have arrived.
        pending: mega-batches gathered since the training before.
        trained: trainings since the last restart: that one counts, and this one does not. The weights have no trace of
            any before.
        processed: mega-batches of these trainings.
        grown: growth steps so far, including those directly before this training.
        grows: growth steps directly before this training.
    """

    last: NDArray[Any]
    size: NDArray[Any]
    tick: NDArray[Any]
    pending: NDArray[Any]
    trained: NDArray[Any]
    processed: NDArray[Any]
    grown: NDArray[Any]
    grows: NDArray[Any]

    def warm(self) -> Array:
        """Return the terms of a training that continues from trained weights, float64 (n, terms)."""
        last, share = self.last, self.size / self.tick
        a, b, k, e, g = np.log(self.size), np.log(self.tick), *map(np.log1p, (self.trained, self.processed, self.grown))
        old = np.log1p(self.size - self.pending)
        columns = [np.ones_like(a), a, a * a, last, last * a, b, b * b, a * b, share, share * a, old, old * last]
        # The more it was trained, the less it gains from all data once more: k and e beside share.
        columns += [k, k * a, k * last, k * share, e, e * a, e * share]
        columns += [g, g * a, g * last, self.grows, self.grows * a]
        # After growth, a training without growth may change the newest member of several.
        ungrown = (np.asarray(self.grown) > 0) & (np.asarray(self.grows) == 0)
        columns += [ungrown, ungrown * a, ungrown * last]
        # The size beside all that the network was trained on: without it, schedules with few large trainings are
        # simulated with too high errors.
        new = np.log1p(self.size / (1 + self.processed))
        columns += [new, new * new, new * last]
        return np.stack(columns).T  # each term in one piece of memory: several times as fast as each training

    def cold(self) -> Array:
        """Return the terms of a training that starts from a random initialisation, float64 (n, terms)."""
        last, later = self.last, np.asarray(self.grown) > 0
        a, g = np.log(self.size), np.log1p(self.grown)
        # A restart after growth keeps the older members of a growing ensemble, and so a part of the error before.
        columns = [np.ones_like(a), a, a * a, g, g * a, later, later * a, later * last, g * last]
        return np.stack(columns).T

    def of(self, rows: NDArray[Any]) -> Trainings:
        """Return some of the trainings."""
        return Trainings(*(values[rows] for values in vars(self).values()))


def validation_terms(after: Array, size: Array) -> Array:
    """Return the terms of log validation loss and validation error, given the logit of the error after a training."""
    a = np.log(size)
    return np.stack([np.ones_like(a), after, after * after, after**3, a, a * after]).T


def validation_noise(after: Array, size: Array) -> Array:
    """Return the units of the residuals of log validation loss and validation error, float64 (n, 2).

    The number of validation examples grows with the mega-batches. Each is answered wrongly with the probability of the
    error, so that the spread of their share is that of a binomial distribution. A loss is a mean over as many examples.

    Args:
        after: logit of the error after each training, (n,).
        size: mega-batches that it trains on, (n,).
    """
    error = logistic(after)
    return np.stack([np.ones_like(error), np.sqrt(error * (1 - error))], -1) / np.sqrt(size)[:, None]


def residual_unit(size: Any, power: Any) -> Any:
    """Return the unit of the residual of the logit after warm trainings on these numbers of mega-batches."""
    return size**-power


@dataclass(frozen=True)
class TrainingModel:
    """A fitted model of the trainings of one learner on streams with ``ticks`` mega-batches.

    Attributes:
        ticks: length of the stream, B.
        guess_loss: cross-entropy of the uniform guess.
        first_errors: float64 (FIRST_ERRORS,): errors of the untrained predictors of recorded seeds.
        warm: weights of the regression of warm trainings, float64 (2, terms): without and with growth steps so far.
        cold: weights of that of cold trainings, float64 (terms,).
        validation: weights, float64 (terms, 2).
        low, high: bounds of the logit: 0.1 below the lowest and above the highest recorded value.
        warm_edges: float64 (POOLS - 1,): logits of the error before a training that separate the pools.
        warm_residuals: float64 (POOLS, POOL_SIZE, 3): of the logit in units of `residual_unit`, and of log validation
            loss and validation error in units of `validation_noise`.
        warm_power: how fast the unit of the first of them falls with the data: 0, or positive.
        cold_edges: float64 (COLD_POOLS - 1,): log sizes that separate the pools.
        cold_residuals: float64 (COLD_POOLS, POOL_SIZE, 3).
        quality: standard deviation of the quality, in logits.
        parameters: float64 (growth steps + 1,): parameters by number of growth steps.
        flops: float64 (growth steps + 1, 2): FLOPs of a training by number of growth steps: fixed part, per mega-batch.
        pass_flops: FLOPs of a full pass, see `agents.rl.recorded.costs.full_pass_of`: the unit of the price of FLOPs.
        replays, restarts, grows: whether trainings with replay, restarts and growth were recorded.
        free_growth: whether growth leaves the FLOPs of a training as they are; a fact of the method.
        untrained_growth: whether growth adds untrained members and freezes the others, so that a restart at the same
            training changes nothing.
    """

    ticks: int
    guess_loss: float
    first_errors: Array
    warm: Array
    cold: Array
    validation: Array
    low: float
    high: float
    warm_edges: Array
    warm_residuals: Array
    warm_power: float
    cold_edges: Array
    cold_residuals: Array
    quality: float
    parameters: Array
    flops: Array
    pass_flops: float
    replays: bool
    restarts: bool
    grows: bool
    free_growth: bool
    untrained_growth: bool


def require_all_decisions(models: Sequence[TrainingModel]) -> None:
    """Raise ValueError if a model was fitted to runs without replay or without restarts.

    A policy that learns on such a model never sees what these decisions do, and a run carries them out.
    """
    for number, one in enumerate(models):
        if not (one.replays and one.restarts):
            raise ValueError(
                f"model {number}: replays={one.replays}, restarts={one.restarts}: the recorded runs must contain "
                "replay and restarts, about which v1 decides; record runs with `alma surrogate record`, exploring runs "
                "among them"
            )
