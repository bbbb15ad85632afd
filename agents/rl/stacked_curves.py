"""Several fitted learning curves as arrays, to simulate the trainings of many episodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agents.rl.learning_curve import Curve, logit, terms

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


class StackedCurves:
    """The numbers of several curves; the first axis of each array is the curve.

    Attributes:
        ticks: length of the streams, B.
        guess_loss: cross-entropy of the uniform guess, float64 (curves,).
        first_error: error of the untrained predictor, float64 (curves,).

    Raises:
        ValueError: the streams of the curves differ in length.
    """

    def __init__(self, curves: Sequence[Curve]) -> None:
        if len({curve.ticks for curve in curves}) > 1:
            raise ValueError(
                f"streams of {', '.join(str(curve.ticks) for curve in curves)} mega-batches: the curves of one "
                "environment must have streams of equal length; make one environment per length"
            )
        steps = max(len(curve.parameters) for curve in curves)

        def padded(values: NDArray[Any]) -> NDArray[Any]:
            """Repeat the last recorded value: further growth steps change nothing."""
            return np.concatenate([values, np.repeat(values[-1:], steps - len(values), 0)])

        self.ticks = curves[0].ticks
        self.guess_loss = np.array([curve.guess_loss for curve in curves])
        self.first_error = np.array([curve.first_error for curve in curves])
        self._weights = np.stack([curve.weights for curve in curves])
        self._low, self._high = (np.stack([getattr(curve, name) for curve in curves]) for name in ("low", "high"))
        self._edges = np.stack([curve.edges for curve in curves])
        self._residuals = np.stack([curve.residuals for curve in curves])
        self._parameters = np.stack([padded(curve.parameters) for curve in curves])
        self._flop_lines = np.stack([padded(curve.flops) for curve in curves])

    def __len__(self) -> int:
        return len(self.guess_loss)

    def outcome(
        self, curve: Rows, error: Array, size: Rows, seen: Rows, stages: Rows, replay: Any, grown: Rows, draw: Rows
    ) -> tuple[Array, Array, Array]:
        """Return error, validation loss and validation error after a training, each float64 (n,).

        Args:
            curve: number of the curve of each episode, (n,); the others as in `agents.rl.learning_curve.terms`.
            error: error before the training.
            draw: which residual of its pool is added.
        """
        x = terms(logit(error), size, seen, stages, replay, grown)
        y = x @ self._weights[0] if len(self) == 1 else np.einsum("np,npk->nk", x, self._weights[curve])
        pool = (self._edges[curve] <= np.log(size)[:, None]).sum(1)
        y += self._residuals[curve, pool, draw]
        y = np.clip(y, self._low[curve], self._high[curve])
        return 1 / (1 + np.exp(-y[:, 0])), np.exp(y[:, 1]), np.clip(y[:, 2], 0, 1)

    def flops(self, curve: Rows, size: Rows, grown: Rows) -> Array:
        """Return the FLOPs of a training on `size` mega-batches after `grown` growth steps, float64 (n,)."""
        line = self._flop_lines[curve, self._steps(grown)]
        return np.asarray(np.maximum(line[:, 0] + line[:, 1] * size, 0))

    def parameters(self, curve: Rows, grown: Rows | int = 0) -> Array:
        """Return the parameters after `grown` growth steps, float64 (n,)."""
        return cast("Array", self._parameters[curve, self._steps(grown)])

    def _steps(self, grown: Rows | int) -> Rows:
        return np.asarray(np.minimum(grown, self._parameters.shape[1] - 1))
