"""Several models of trainings as arrays, to simulate the trainings of many episodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.regression import POOL_SIZE, Array, Rows, logit
from agents.rl.models.stacked_costs import StackedCosts
from agents.rl.models.training_model import (
    FIRST_ERRORS,
    TrainingModel,
    Trainings,
    residual_unit,
    validation_noise,
    validation_terms,
)


class StackedModels(StackedCosts):
    """The numbers of several models; the first axis of each array is the model.

    Attributes:
        pass_flops: FLOPs of a full pass, float64 (models,).
        quality: standard deviation of the quality, float64 (models,).
        replays, restarts, grows: whether such trainings were recorded, bool (models,).
        free_growth: whether growth leaves the FLOPs of a training as they are, bool (models,).
        untrained_growth: whether growth adds untrained members and freezes the others, bool (models,).
    """

    def __init__(self, models: Sequence[TrainingModel]) -> None:
        super().__init__(models)

        def stacked(name: str) -> NDArray[Any]:
            return np.stack([np.asarray(getattr(model, name)) for model in models])

        self.pass_flops, self.quality = stacked("pass_flops"), stacked("quality")
        self._first_errors = stacked("first_errors")
        self.replays, self.restarts, self.grows = map(stacked, ("replays", "restarts", "grows"))
        self.free_growth = stacked("free_growth")
        self.untrained_growth = stacked("untrained_growth")
        self._low, self._high = stacked("low"), stacked("high")
        self._cold, self._warm = stacked("cold"), stacked("warm")
        self._edges = {True: stacked("cold_edges"), False: stacked("warm_edges")}
        self._residuals = {True: stacked("cold_residuals"), False: stacked("warm_residuals")}
        self._power = stacked("warm_power")
        self._validation = stacked("validation")

    def expected(self, model: Rows, trainings: Trainings, cold: NDArray[np.bool_]) -> tuple[Array, Rows]:
        """Return the logit of the error after trainings without residual and quality, and the pool of the residual.

        Args:
            model: number of the model of each training, (n,).
            trainings: the trainings.
            cold: which of them start from a random initialisation, (n,).

        Returns:
            logits, float64 (n,), and pools of the cold or warm residuals, int64 (n,).
        """
        after, pool = np.empty(len(model)), np.empty(len(model), np.int64)
        for is_cold in (True, False):
            rows = np.flatnonzero(cold == is_cold)
            if len(rows):
                some, of = trainings.of(rows), model[rows]
                place = np.log(some.size) if is_cold else some.last
                pool[rows] = (self._edges[is_cold][of] <= place[:, None]).sum(1)
                after[rows] = self._linear(some.cold(), self._cold, of) if is_cold else self._after_warm(some, of)
        return after, pool

    def _after_warm(self, trainings: Trainings, model: Rows) -> Array:
        """Return the logit of the error after warm trainings without residual and quality, float64 (n,)."""
        terms, grown = trainings.warm(), trainings.grown > 0
        after = self._linear(terms, self._warm[:, 0], model)
        return np.where(grown, self._linear(terms, self._warm[:, 1], model), after) if grown.any() else after

    def outcome(
        self,
        model: Rows,
        trainings: Trainings,
        cold: NDArray[np.bool_],
        quality: Array,
        dead: NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> tuple[Array, Array, Array]:
        """Return the logit of the error, the validation loss and the validation error after trainings, float64 (n,).

        Args:
            model, trainings, cold: as in `expected`.
            quality: of the networks, (n,); it has no effect on a cold training.
            dead: which networks guess, whatever the training, (n,).
            generator: draws the residuals.
        """
        after, pool = self.expected(model, trainings, cold)
        drawn = generator.integers(POOL_SIZE, size=len(model))
        rest = np.empty((len(model), 3))
        for is_cold, residuals in self._residuals.items():
            rows = np.flatnonzero(cold == is_cold)
            rest[rows] = residuals[model[rows], pool[rows], drawn[rows]]
        rest[:, 0] *= residual_unit(trainings.size, np.where(cold, 0.0, self._power[model]))
        after = np.clip(after + rest[:, 0] + np.where(cold, 0.0, quality), self._low[model], self._high[model])
        seen = self._linear(validation_terms(after, trainings.size), self._validation, model)
        if dead.any():  # the regression would extrapolate: many learners have no recorded error that high
            guess_loss = self.guess_loss[model[dead]]
            guess = 1 - np.exp(-guess_loss)
            after[dead], seen[dead] = logit(guess), np.stack([np.log(guess_loss), guess], -1)
        seen += rest[:, 1:] * validation_noise(after, trainings.size)
        return after, np.exp(seen[:, 0]), np.clip(seen[:, 1], 0, 1)

    def draw_first_errors(self, model: Rows, generator: np.random.Generator) -> Array:
        """Return the error of an untrained predictor for each episode, float64 (n,)."""
        return cast("Array", self._first_errors[model, generator.integers(FIRST_ERRORS, size=len(model))])

    def _linear(self, terms: Array, weights: Array, model: Rows) -> Array:
        """Return terms (n, t) · the weights of each training's model, (models, t) or (models, t, k)."""
        if len(self) == 1:
            return np.asarray(terms @ weights[0])
        return np.asarray(np.einsum("nt,nt...->n...", terms, weights[model]))
