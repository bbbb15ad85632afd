"""The course of the episodes of a surrogate, and its pictures; without a render mode nothing is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.regression import Array
from alma_env.rendering.renderer import Frame, Renderer
from alma_env.rendering.view import Trace, View

Rows = NDArray[np.int64]


class SurrogatePictures:
    """Errors, parameters and trainings at the ticks of n episodes, and their pictures.

    An episode that has ended stays until `start`, so that its last picture can be drawn although the surrogate has
    started the next episode.

    Args:
        episodes: n.
        ticks: length of the stream, B.
        simulate_waits: returns the errors of fixed waits on a curve, see `agents.rl.models.fixed_waits`.
        title: of the pictures.
        error_of: the data of the error.
    """

    def __init__(
        self, episodes: int, ticks: int, simulate_waits: Callable[[int], dict[int, Array]], title: str, error_of: str
    ) -> None:
        self._simulate_waits, self._title, self._error_of = simulate_waits, title, error_of
        self._errors, self._parameters, self._flops = np.zeros((3, episodes, ticks + 1))
        self._trained = np.zeros((episodes, ticks + 1), bool)
        self._curve = np.zeros(episodes, np.int64)
        self._last = np.full(episodes, -1)  # tick; -1 before the first episode
        self._fixed_waits: dict[int, dict[int, Array]] = {}  # by curve
        self._renderers: dict[int, Renderer] = {}  # by curve, because a figure shows the fixed waits of one curve

    def start(self, rows: Rows, curves: Rows, errors: Array, parameters: Array) -> None:
        """Start the episodes of these rows on these curves; the other arrays (n,) are those of all episodes."""
        self._curve[rows] = curves[rows]
        self._errors[rows, 0], self._parameters[rows, 0] = errors[rows], parameters[rows]
        self._last[rows] = 0

    def add(
        self,
        rows: Rows,
        ticks: Rows,
        errors: Array,
        parameters: Array,
        flops: Array,
        trained: NDArray[np.bool_],
    ) -> None:
        """Enter the answers of the episodes of these rows; the other arrays (n,) are those of all episodes."""
        place = rows, ticks[rows]
        self._errors[place], self._parameters[place] = errors[rows], parameters[rows]
        self._flops[place], self._trained[place] = flops[rows], trained[rows]
        self._last[rows] = ticks[rows]

    def view(self, row: int) -> View:
        """Return what a picture of an episode shows.

        Raises:
            RuntimeError: there is no episode yet.
        """
        if self._last[row] < 0:
            raise RuntimeError("render() before reset(): there is no episode to draw; call reset() first")
        until = slice(self._last[row] + 1)
        trace = Trace.of(
            self._errors[row, until],
            self._trained[row, until],
            self._parameters[row, until],
            float(self._flops[row, until].sum()),
        )
        curve = int(self._curve[row])
        if curve not in self._fixed_waits:
            self._fixed_waits[curve] = self._simulate_waits(curve)
        return View(
            self._title,
            self._errors.shape[1] - 1,
            {"agent": trace},
            error_of=self._error_of,
            fixed_waits=self._fixed_waits[curve],
        )

    def draw(self, mode: str) -> tuple[Frame, ...]:
        """Draw each episode."""
        return tuple(
            self._renderers.setdefault(curve, Renderer(mode)).render(partial(self.view, row))
            for row, curve in enumerate(self._curve.tolist())
        )
