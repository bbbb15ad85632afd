"""The course of the episodes of a surrogate, which only pictures need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from alma_env.rendering.view import Trace

Array = NDArray[np.float64]


class EpisodeHistory:
    """Errors, parameters and trainings at the ticks of n episodes.

    An episode that has ended stays until the next episode answers its first tick, so that the last picture of an
    episode can be drawn although the surrogate has started the next one. ``errors`` is float64 (n, B + 1).
    """

    def __init__(self, episodes: int, ticks: int) -> None:
        self.errors, self._parameters, self._flops = np.zeros((3, episodes, ticks + 1))
        self._trained = np.zeros((episodes, ticks + 1), bool)
        self._last = np.zeros(episodes, np.int64)  # tick

    def start(self, rows: NDArray[np.int64], errors: Array, parameters: Array) -> None:
        """Start the episodes of these rows; ``errors`` and ``parameters`` (n,) are those of all episodes."""
        self.errors[rows, 0], self._parameters[rows, 0] = errors[rows], parameters[rows]
        self._last[rows] = 0

    def add(
        self, ticks: NDArray[np.int64], errors: Array, parameters: Array, flops: Array, trained: NDArray[np.bool_]
    ) -> None:
        """Enter the answers of all episodes at their ticks; all arrays are (n,)."""
        rows = np.arange(len(ticks))
        self.errors[rows, ticks], self._parameters[rows, ticks] = errors, parameters
        self._flops[rows, ticks], self._trained[rows, ticks] = flops, trained
        self._last = ticks.copy()

    def trace(self, row: int) -> Trace:
        """Return the course of an episode."""
        until = slice(self._last[row] + 1)
        return Trace.of(
            self.errors[row, until],
            self._trained[row, until],
            self._parameters[row, until],
            float(self._flops[row, until].sum()),
        )
