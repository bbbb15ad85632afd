"""The image of an episode: one Matplotlib figure, drawn once and updated at each tick.

The axes, the fixed waits and the legend are drawn once and kept as pixels. A tick draws the curves on top of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from alma_env.rendering import palette
from alma_env.rendering.text import summary
from alma_env.rendering.view import Trace, View

_DPI = 100
_WIDTH, _HEIGHT = 7.2, 4.2  # inches; even numbers of pixels, because video formats need them
_ROW = 0.2  # inches; the line of numbers of one of several learners
_FAINT = "#b3b3b3"
_LONGEST_NAME = 24
_GAP = 5  # pixels between the labels of two fixed waits


class Picture:
    """The picture of one episode after another. `fits` says whether it suits a view."""

    def __init__(self, view: View) -> None:
        self._kind = _kind(view)
        rows = len(view.traces) if len(view.traces) > 1 else 0
        height = _HEIGHT + _ROW * rows
        self._figure = Figure((_WIDTH, height), dpi=_DPI, facecolor="white")
        self._canvas: Any = FigureCanvasAgg(self._figure)  # has no annotations
        bottom, top = (0.82 + _ROW * rows) / height, 1 - 0.62 / height
        self._axes = self._figure.add_axes((0.1, bottom, 0.87, top - bottom))
        self._set_up_axes(view)
        self._figure.text(0.015, 1 - 0.27 / height, view.title, fontsize=12)
        self._headline = self._text(0.015, 1 - 0.49 / height)
        self._curves: dict[str, _Curve] = {}
        for place, name in enumerate(view.traces):
            colour, dashes = palette.COLOURS[place % 7], palette.DASHES[place % 7]
            y = (0.36 + _ROW * (rows - 1 - place)) / height
            if rows:  # the learner's line, and its numbers beside the line
                handle = Line2D([0.02, 0.075], [y + 0.045 / height] * 2, color=colour, linestyle=dashes)
                self._figure.add_artist(handle)
            self._curves[name] = _Curve(self._axes, colour, dashes, self._text(0.09, y) if rows else None)
        self._add_fixed_waits(view)
        self._add_legend(bool(view.fixed_waits))
        self._limits: tuple[float, float] | None = None
        self._background: Any = None

    def fits(self, view: View) -> bool:
        """Return whether the title, the axes, the learners and the fixed waits of a view are those of the picture."""
        return self._kind == _kind(view)

    def draw(self, view: View) -> NDArray[np.uint8]:
        """Return the image of a view, uint8 (height, width, 3)."""
        if self._limits != view.limits():
            self._limits = view.limits()
            self._axes.set_ylim(*self._limits)
            self._axes.yaxis.set_major_locator(FixedLocator(view.marks()))
            self._canvas.draw()
            self._background = self._canvas.copy_from_bbox(self._figure.bbox)
        headline = f"tick {view.tick} of {view.ticks}"
        artists: list[Artist] = [self._headline]
        for name, trace in view.traces.items():
            curve = self._curves[name]
            artists += curve.update(trace, view, self._limits[0])
            if curve.numbers is None:
                headline += f"{_stopped(trace)}: {summary(view, trace)}"
            else:
                curve.numbers.set_text(f"{_short(name)}: {summary(view, trace, parameters=False)}{_stopped(trace)}")
                artists.append(curve.numbers)
        self._headline.set_text(headline)
        self._canvas.restore_region(self._background)
        for artist in artists:
            self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _text(self, x: float, y: float) -> Text:
        return self._figure.text(x, y, "", fontsize=10, animated=True)

    def _set_up_axes(self, view: View) -> None:
        axes = self._axes
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, view.ticks)
        axes.set_yscale("log")
        axes.set_xlabel("tick (mega-batches seen)")
        axes.set_ylabel(f"{view.error_of} {view.measure}".strip())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())

    def _add_fixed_waits(self, view: View) -> None:
        """Draw the curves of the fixed waits, with the waiting time where the curve first falls."""
        taken = 0.0  # pixels from the left
        for wait, values in sorted(view.fixed_waits.items()):
            errors = np.asarray(values, np.float64)
            self._axes.step(np.arange(len(errors)), errors, where="post", color=_FAINT, linewidth=0.9, zorder=1)
            x = int(np.argmax(errors != errors[0]))
            side, shift = ("right", -1) if x > 0.9 * view.ticks else ("left", 1)
            label = self._axes.annotate(
                f"{wait}", (x, errors[0]), (shift, 3), textcoords="offset points", ha=side, fontsize=9
            )
            label.set_color(palette.GREY)
            box = label.get_window_extent()
            if box.x0 < taken:
                label.remove()
            else:
                taken = box.x1 + _GAP

    def _add_legend(self, with_fixed_waits: bool) -> None:
        grey: dict[str, Any] = {"color": palette.GREY, "linestyle": ""}
        entries = {
            "trained": Line2D([], [], marker="o", markersize=4.5, **grey),
            "grew": Line2D([], [], marker="^", markersize=8, **grey),
        }
        if with_fixed_waits:
            entries["fixed waits, with their number of mega-batches"] = Line2D([], [], color=_FAINT, linewidth=0.9)
        self._figure.legend(
            entries.values(), entries, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3, frameon=False, fontsize=10
        )


class _Curve:
    """The line of one learner and its marks."""

    def __init__(self, axes: Any, colour: str, dashes: Any, numbers: Text | None) -> None:
        self.numbers = numbers
        look: dict[str, Any] = {"color": colour, "animated": True, "clip_on": False}
        (self._line,) = axes.plot([], [], drawstyle="steps-post", linestyle=dashes, linewidth=1.8, **look)
        (self._trained,) = axes.plot([], [], linestyle="", marker="o", markersize=4.5, **look)
        (self._grown,) = axes.plot([], [], linestyle="", marker="^", markersize=8, **look)

    def update(self, trace: Trace, view: View, lowest: float) -> Sequence[Artist]:
        """Set the curve to a trace, and return what is to be drawn."""
        errors = np.maximum(trace.errors, lowest)
        # The answer of a tick stays until the next tick.
        ticks = np.arange(len(errors) + 1)
        self._line.set_data(np.minimum(ticks, view.ticks), np.append(errors, errors[-1]))
        for marks, which in ((self._trained, trace.trained & ~trace.grown), (self._grown, trace.grown)):
            marks.set_data(np.flatnonzero(which), errors[which])
        return self._line, self._trained, self._grown


def _kind(view: View) -> tuple[Any, ...]:
    waits = tuple((wait, tuple(errors)) for wait, errors in sorted(view.fixed_waits.items()))
    return view.title, view.ticks, view.error_of, view.measure, tuple(view.traces), waits


def _stopped(trace: Trace) -> str:
    return "" if trace.stopped is None else f" (over budget at {trace.stopped})"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
