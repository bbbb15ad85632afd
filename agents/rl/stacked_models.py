"""Several models of trainings as arrays, to simulate the trainings of many episodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agents.rl.training_model import FIRST_ERRORS, POOL_SIZE, TrainingModel, Trainings, validation_terms

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


class StackedModels:
    """The numbers of several models; the first axis of each array is the model.

    Attributes:
        ticks: length of the streams, B.
        guess_loss: cross-entropy of the uniform guess, float64 (models,).
        first_error: mean error of the untrained predictor, float64 (models,).
        pass_flops: FLOPs of a full pass, float64 (models,).
        quality: standard deviation of the quality, float64 (models,).
        replays, restarts, grows: whether such trainings were recorded, bool (models,).

    Raises:
        ValueError: the streams of the models differ in length.
    """

    def __init__(self, models: Sequence[TrainingModel]) -> None:
        if len({model.ticks for model in models}) > 1:
            raise ValueError(
                f"streams of {', '.join(str(model.ticks) for model in models)} mega-batches: the models of one "
                "environment must have streams of equal length; make one environment per length"
            )
        steps = max(len(model.parameters) for model in models)

        def stacked(name: str) -> NDArray[Any]:
            return np.stack([np.asarray(getattr(model, name)) for model in models])

        def padded(name: str) -> NDArray[Any]:
            """Repeat the last recorded value: further growth steps change nothing."""
            values = (getattr(model, name) for model in models)
            return np.stack([np.concatenate([one, np.repeat(one[-1:], steps - len(one), 0)]) for one in values])

        self.ticks = models[0].ticks
        self.guess_loss, self.pass_flops, self.quality = map(stacked, ("guess_loss", "pass_flops", "quality"))
        self._first_errors = stacked("first_errors")
        self.first_error = self._first_errors.mean(1)
        self.replays, self.restarts, self.grows = map(stacked, ("replays", "restarts", "grows"))
        self._low, self._high = stacked("low"), stacked("high")
        self._weights = {True: stacked("cold"), False: stacked("warm")}
        self._edges = {True: stacked("cold_edges"), False: stacked("warm_edges")}
        self._residuals = {True: stacked("cold_residuals"), False: stacked("warm_residuals")}
        self._validation = stacked("validation")
        self._parameters, self._flop_lines = padded("parameters"), padded("flops")

    def __len__(self) -> int:
        return len(self.guess_loss)

    def outcome(
        self, model: Rows, trainings: Trainings, cold: NDArray[np.bool_], quality: Array, generator: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Return the logit of the error, the validation loss and the validation error after trainings, float64 (n,).

        Args:
            model: number of the model of each training, (n,).
            trainings: the trainings.
            cold: which of them start from a random initialisation, (n,).
            quality: of the networks, (n,); it has no effect on a cold training.
            generator: draws the residuals.
        """
        after, rest = np.empty(len(model)), np.empty((len(model), 3))
        drawn = generator.integers(POOL_SIZE, size=len(model))
        for is_cold in (True, False):
            rows = np.flatnonzero(cold == is_cold)
            if not len(rows):
                continue
            some, of = trainings.of(rows), model[rows]
            terms, place = (some.cold(), np.log(some.size)) if is_cold else (some.warm(), some.last)
            pool = (self._edges[is_cold][of] <= place[:, None]).sum(1)
            rest[rows] = self._residuals[is_cold][of, pool, drawn[rows]]
            after[rows] = self._linear(terms, self._weights[is_cold], of) + rest[rows, 0]
        after = np.clip(after + np.where(cold, 0.0, quality), self._low[model], self._high[model])
        terms = validation_terms(after, trainings.size)
        seen = self._linear(terms, self._validation, model) + rest[:, 1:]
        return after, np.exp(seen[:, 0]), np.clip(seen[:, 1], 0, 1)

    def draw_first_errors(self, model: Rows, generator: np.random.Generator) -> Array:
        """Return the error of an untrained predictor for each episode, float64 (n,)."""
        return cast("Array", self._first_errors[model, generator.integers(FIRST_ERRORS, size=len(model))])

    def flops(self, model: Rows, size: Rows, grown: Rows) -> Array:
        """Return the FLOPs of a training on `size` mega-batches after `grown` growth steps, float64 (n,)."""
        line = self._flop_lines[model, self._steps(grown)]
        return np.asarray(np.maximum(line[:, 0] + line[:, 1] * size, 0))

    def parameters(self, model: Rows, grown: Rows | int = 0) -> Array:
        """Return the parameters after `grown` growth steps, float64 (n,)."""
        return cast("Array", self._parameters[model, self._steps(grown)])

    def _linear(self, terms: Array, weights: Array, model: Rows) -> Array:
        """Return terms (n, t) · the weights of each training's model, (models, t) or (models, t, k)."""
        if len(self) == 1:
            return np.asarray(terms @ weights[0])
        return np.asarray(np.einsum("nt,nt...->n...", terms, weights[model]))

    def _steps(self, grown: Rows | int) -> Rows:
        return np.asarray(np.minimum(grown, self._parameters.shape[1] - 1))
