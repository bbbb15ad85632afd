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
        steps = max(len(one.parameters) for one in fitted)

        def padded(values: NDArray[Any]) -> NDArray[Any]:
            """Repeat the last recorded value: further growth steps change nothing."""
            return np.concatenate([values, np.repeat(values[-1:], steps - len(values), 0)])

        self.ticks = fitted[0].ticks
        self.guess_loss = np.array([one.guess_loss for one in fitted])
        self._parameters = np.stack([padded(one.parameters) for one in fitted])
        self._flop_lines = np.stack([padded(one.flops) for one in fitted])

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
