"""The render modes, and the object that an environment draws with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import logger
from numpy.typing import NDArray

from alma_env.rendering.text import line
from alma_env.rendering.view import View

if TYPE_CHECKING:
    from alma_env.rendering.picture import Picture
    from alma_env.rendering.terminal import Terminal

MODES = ("human", "rgb_array", "ansi")
Frame = NDArray[np.uint8] | str | None
FPS = 10  # ticks per second of a video


class Renderer:
    """Draws the views of one environment; it keeps one figure, which each view updates.

    Args:
        mode: ``"rgb_array"``, ``"ansi"``, ``"human"``, or None.
        modes: the modes of the environment.

    Raises:
        ValueError: the mode is unknown.
    """

    def __init__(self, mode: str | None, modes: Sequence[str] = MODES) -> None:
        if mode is not None and mode not in modes:
            raise ValueError(
                f"render_mode={mode!r}: must be None or one of {', '.join(map(repr, modes))}"
                + ("; for a list of all frames, make the environment with gymnasium.make" * str(mode).endswith("_list"))
            )
        self.mode = mode
        self._picture: Picture | None = None
        self._terminal: Terminal | None = None

    def render(self, view: Callable[[], View]) -> Frame:
        """Draw a view.

        Returns:
            ``rgb_array``: uint8 (height, width, 3). ``ansi``: one line of text. ``human``: None. Without a mode: None
            and a warning, as the environments of Gymnasium do.
        """
        if self.mode is None:
            logger.warn(
                "You are calling render method without specifying any render mode. You can specify the render_mode at "
                'initialization, for example render_mode="rgb_array".'
            )
            return None
        if self.mode == "ansi":
            return line(view())
        if self.mode == "human":
            from alma_env.rendering.terminal import Terminal

            self._terminal = self._terminal or Terminal()
            self._terminal.show(view())
            return None
        from alma_env.rendering.picture import Picture

        now = view()
        if self._picture is None or not self._picture.fits(now):
            self._picture = Picture(now)
        return self._picture.draw(now)

    def show(self, view: Callable[[], View]) -> None:
        """Draw a view if the mode is ``human``: ``reset`` and ``step`` call this."""
        if self.mode == "human":
            self.render(view)

    def close(self) -> None:
        """Give the terminal back and drop the figure. The renderer can be used again."""
        if self._terminal is not None:
            self._terminal.close()
        self._terminal = self._picture = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy of an environment draws its own pictures."""
        return {**vars(self), "_picture": None, "_terminal": None}
