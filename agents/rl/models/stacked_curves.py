"""Several fitted learning curves as arrays, to simulate the trainings of many episodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.rl.models.learning_curve import Curve, terms
from agents.rl.models.regression import POOL_SIZE, Array, Rows, logistic, logit
from agents.rl.models.stacked_costs import StackedCosts


class StackedCurves(StackedCosts):
    """The numbers of several curves; the first axis of each array is the curve.

    Attributes:
        first_error: error of the untrained predictor, float64 (curves,).
    """

    def __init__(self, curves: Sequence[Curve]) -> None:
        super().__init__(curves)
        self.first_error = np.array([curve.first_error for curve in curves])
        self._weights = np.stack([curve.weights for curve in curves])
        self._low, self._high = (np.stack([getattr(curve, name) for curve in curves]) for name in ("low", "high"))
        self._edges = np.stack([curve.edges for curve in curves])
        self._residuals = np.stack([curve.residuals for curve in curves])

    def outcome(
        self,
        curve: Rows,
        error: Array,
        size: Rows,
        seen: Rows,
        stages: Rows,
        replay: Any,
        grown: Rows,
        generator: np.random.Generator,
    ) -> tuple[Array, Array, Array]:
        """Return error, validation loss and validation error after a training, each float64 (n,).

        Args:
            curve: number of the curve of each episode, (n,); the others as in `agents.rl.models.learning_curve.terms`.
            error: error before the training.
            generator: draws the residual that is added, from those of its pool.
        """
        x = terms(logit(error), size, seen, stages, replay, grown)
        y = x @ self._weights[0] if len(self) == 1 else np.einsum("np,npk->nk", x, self._weights[curve])
        pool = (self._edges[curve] <= np.log(size)[:, None]).sum(1)
        y += self._residuals[curve, pool, generator.integers(POOL_SIZE, size=len(curve))]
        y = np.clip(y, self._low[curve], self._high[curve])
        return logistic(y[:, 0]), np.exp(y[:, 1]), np.clip(y[:, 2], 0, 1)
