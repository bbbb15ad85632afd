"""What the best of a few simple schedules costs on fitted models: the scale of costs at given prices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.training_model import TrainingModel
from agents.rl.surrogates.tuning import simulate

_FACTORS, _STOPS, _REPLAYS = (1.2, 3.0), (0.02, 0.1, 0.3, 0.8), ("none", "all")
_EPISODES = 32


@dataclass(frozen=True)
class ReferenceCosts:
    """The means of several schedules on several models.

    Attributes:
        cer, passes, size: cumulative error rate, full passes, and size summed over the ticks, float64 (models,
            schedules).
    """

    cer: NDArray[np.float64]
    passes: NDArray[np.float64]
    size: NDArray[np.float64]

    @classmethod
    def of(cls, models: Sequence[TrainingModel]) -> ReferenceCosts:
        """Simulate the schedules: geometric, with and without replay, with early and late stops."""
        schedules = [
            f"geometric:factor={factor},stop={stop},replay={replay}"
            for factor, stop, replay in itertools.product(_FACTORS, _STOPS, _REPLAYS)
        ]
        if any(model.grows for model in models):
            schedules += [f"{schedule},growth=never" for schedule in schedules]
        found = [[simulate([model], schedule, _EPISODES) for schedule in schedules] for model in models]
        means = (
            np.array([[getattr(one, name).mean() for one in row] for row in found])
            for name in ("cer", "passes", "size")
        )
        return cls(*means)

    def __call__(self, model: NDArray[np.int64], pass_price: Any, memory_price: Any) -> NDArray[np.float64]:
        """Return the cost of the best schedule for models (n,) at prices (n,), float64 (n,)."""
        priced = np.multiply(pass_price, self.passes[model].T) + np.multiply(memory_price, self.size[model].T)
        return np.asarray((self.cer[model].T + priced).min(0))
