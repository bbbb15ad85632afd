"""FLOPs and parameters of several fitted learners as arrays, which both surrogates share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.learning_curve import Curve
from agents.rl.models.regression import Array, Rows
from agents.rl.models.training_model import TrainingModel


class StackedCosts:
    """The costs of several fitted learners; the first axis of each array is the learner.

    Attributes:
        ticks: length of the streams, B.
        guess_loss: cross-entropy of the uniform guess, float64 (learners,).

    Raises:
        ValueError: the streams differ in length.
    """

    def __init__(self, fitted: Sequence[Curve] | Sequence[TrainingModel]) -> None:
        if len({one.ticks for one in fitted}) > 1:
            raise ValueError(
                f"streams of {', '.join(str(one.ticks) for one in fitted)} mega-batches: one environment must have "
                "streams of equal length; make one environment per length"
            )
        self.ticks = fitted[0].ticks
        steps = max(self.ticks + 1, *(len(one.parameters) for one in fitted))

        def extended(values: NDArray[Any]) -> NDArray[Any]:
            """Add what a recorded growth step adds on average for each further one; a policy may take more of them."""
            further = np.arange(1, steps - len(values) + 1).reshape(-1, *(1,) * (values.ndim - 1))
            each = np.maximum(values[-1] - values[0], 0) / max(len(values) - 1, 1)
            return np.concatenate([values, values[-1] + further * each])

        self.guess_loss = np.array([one.guess_loss for one in fitted])
        self._parameters = np.stack([extended(one.parameters) for one in fitted])
        self._flop_lines = np.stack([extended(one.flops) for one in fitted])

    def __len__(self) -> int:
        return len(self.guess_loss)

    def flops(self, learner: Rows, size: Rows, grown: Rows) -> Array:
        """Return the FLOPs of a training on `size` mega-batches after `grown` growth steps, float64 (n,)."""
        line = self._flop_lines[learner, self._steps(grown)]
        return np.asarray(np.maximum(line[:, 0] + line[:, 1] * size, 0))

    def parameters(self, learner: Rows, grown: Rows | int = 0) -> Array:
        """Return the parameters after `grown` growth steps, float64 (n,)."""
        return cast("Array", self._parameters[learner, self._steps(grown)])

    def _steps(self, grown: Rows | int) -> Rows:
        return np.asarray(np.minimum(grown, self._parameters.shape[1] - 1))
