"""The display in the terminal, which each tick replaces. Output that is no terminal gets one line per tick."""

from __future__ import annotations

import weakref

from rich.console import Console
from rich.live import Live
from rich.text import Text

from alma_env.rendering import palette
from alma_env.rendering.text import chart, line
from alma_env.rendering.view import View

_MOST_COLUMNS = 100


class Terminal:
    """Shows the views of an episode, one after another."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._last_line = ""

    def show(self, view: View) -> None:
        """Show a view in place of the one before it. The view of the last tick stays."""
        if not self._console.is_terminal:
            if line(view) != self._last_line:  # the user may call `render` after a `step` that has drawn the tick
                self._last_line = line(view)
                self._console.print(self._last_line, markup=False, soft_wrap=True)
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            # A program that ends in the middle of an episode must not leave the cursor hidden.
            weakref.finalize(self, self._live.stop)
            self._live.start()
        self._live.update(self._coloured(view), refresh=True)
        if view.tick == view.ticks:
            self.close()

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _coloured(self, view: View) -> Text:
        colours = dict(zip(view.traces, palette.COLOURS * len(view.traces), strict=False))
        out = Text(no_wrap=True, overflow="ellipsis")
        for text, name in chart(view, min(self._console.width, _MOST_COLUMNS)):
            out.append(text + "\n", style=colours.get(name, ""))
        out.rstrip()
        return out
