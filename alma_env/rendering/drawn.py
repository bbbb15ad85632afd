"""What the environments that can be drawn have in common: ``render`` and ``close``."""

from __future__ import annotations

from alma_env.rendering.renderer import Frame, Renderer
from alma_env.rendering.view import View


class Drawn:
    """An environment with pictures. It sets ``_renderer`` when it is made, and defines ``_view``."""

    _renderer: Renderer

    def _view(self) -> View:
        raise NotImplementedError

    def render(self) -> Frame:
        """Draw the episode so far, as ``render_mode`` says; the manual of ``AlmaEnv`` describes the modes.

        Raises:
            RuntimeError: there is no episode: call ``reset``.
        """
        return self._renderer.render(self._view)

    def close(self) -> None:
        """Give the terminal back, if ``render_mode`` is ``"human"``. The environment can be used again."""
        self._renderer.close()
