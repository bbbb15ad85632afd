"""The style that all figures share: readable with any colour vision, and in grey print.

The colours are those of Okabe and Ito. Lines that differ in colour also differ in dashes and marker.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from agents.analysis.measures import Measure, engineering
from alma_env.rendering.palette import COLOURS as COLOURS
from alma_env.rendering.palette import DASHES as DASHES
from alma_env.rendering.palette import GREY as GREY
from alma_env.rendering.palette import MARKERS as MARKERS


@dataclass(frozen=True)
class Stroke:
    """How one line is drawn."""

    colour: str
    dashes: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Colour and dashes as keywords of Matplotlib's lines."""
        return {"color": self.colour, "linestyle": self.dashes}


def strokes(names: Iterable[Hashable]) -> dict[Any, Stroke]:
    """Return a stroke for each name: the first 49 are distinct; neighbours differ in colour, dashes and marker."""
    out: dict[Any, Stroke] = {}
    for place, name in enumerate(dict.fromkeys(names)):
        turn = place // len(COLOURS)
        shifted = (place + turn) % len(DASHES)
        out[name] = Stroke(COLOURS[place % len(COLOURS)], DASHES[shifted], MARKERS[shifted])
    return out


def width_text(width: int | None) -> str:
    """Return a width as text; – for an agent without a width (None, or 0 in a sorted list)."""
    return str(width or "–")


def by_replay(stroke: Stroke, replay: bool | None) -> dict[str, Any]:
    """Return colour, dashes and marker as keywords of Matplotlib's lines.

    With replay the line is dashed and the marker hollow; without it the line is solid. None means that all runs of the
    figure have replay, or that none has; then the line has its own dashes.
    """
    look: dict[str, Any] = {"color": stroke.colour, "marker": stroke.marker, "linestyle": stroke.dashes}
    if replay is not None:
        look["linestyle"] = "--" if replay else "-"
    return look | ({"markerfacecolor": "white"} if replay else {})


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches with constrained layout."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.04, hspace=0.04))


def tick_panels(titles: Sequence[str], columns: int, last: int, y: str) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels in rows of nearly equal length, whose x axes are the ticks 0 to ``last``.

    All panels have the same axes. The lowest panel of a column and the first panel of a row have labels and numbers.
    """
    rows = math.ceil(len(titles) / columns)
    columns = math.ceil(len(titles) / rows)
    width, height = (3.2, 2.5) if len(titles) > 1 else (7.0, 4.0)
    figure = blank(max(width * columns, 5.0), height * rows + 0.5)
    flat: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for axes in flat[len(titles) :]:
        axes.remove()
    for place, (axes, title) in enumerate(zip(flat, titles, strict=False)):
        plain(axes)
        panel_title(axes, title)
        axes.set_xlim(0, last)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        lowest = place + columns >= len(titles)
        axes.tick_params(labelbottom=lowest)
        if lowest:
            axes.set_xlabel("tick (mega-batches seen)")
        if place % columns == 0:
            axes.set_ylabel(y)
    return figure, flat[: len(titles)]


def panel_title(axes: Axes, text: str) -> None:
    """Write the title of a panel at its left, with line breaks."""
    axes.set_title(textwrap.fill(text, 36), fontsize="medium", loc="left")


def plain(axes: Axes) -> None:
    """Remove the frame at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def points(
    axes: Axes, x: Sequence[float], y: Sequence[float], half: Sequence[float], stroke: Stroke, label: str | None
) -> None:
    """Draw points in the colour and with the marker of a stroke, with bars from y − half to y + half."""
    axes.errorbar(
        x,
        y,
        half,
        color=stroke.colour,
        marker=stroke.marker,
        linestyle="none",
        markersize=5,
        elinewidth=0.8,
        label=label,
    )


def error_axis(axes: Axes, measure: Measure, lowest: float, highest: float) -> None:
    """Set up the y axis for errors.

    The axis starts at 0. It is logarithmic for perplexities, and if the highest error is 10 times the lowest or more.
    The axis fits the means; a band over few seeds may leave it.
    """
    if not measure.logarithmic and (lowest <= 0 or highest / lowest < 10):
        axes.set_ylim(0, 1.1 * highest)
        return
    axes.set_yscale("log")
    axes.set_ylim(lowest * 0.8, highest * 1.25)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def log_axis(axis: Any, values: Iterable[float], letters: bool = False) -> None:
    """Make an axis logarithmic, with round numbers as ticks even if the values span less than a decade.

    Values that are not positive and finite are ignored. With ``letters`` a number is 3.4 T instead of 3.4e12.
    """
    known = [value for value in values if value > 0 and math.isfinite(value)]
    if not known:
        return  # for example no FLOPs were spent
    low, high = min(known), max(known)
    margin = max((high / low) ** 0.06, 1.05)
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    if high / low < 1.05:  # a single value needs limits around it
        limits = (low / 1.3, high * 1.3)
    else:  # a bar over few seeds may be much longer than the range of the values, or reach below 0
        start, end = axis.get_view_interval()
        limits = (max(start, low / 3), min(end, high * 3))
    axis.axes.set(**{f"{axis.axis_name}lim": limits})
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for bases in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)):
        places = [base * 10.0**power for power in decades for base in bases]
        places = [place for place in places if low / margin <= place <= high * margin]
        if len(places) >= 3:
            break
    axis.set_major_locator(FixedLocator(places) if len(places) >= 3 else MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: engineering(value) if letters else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def places_axis(axes: Axes, values: Iterable[float]) -> None:
    """Make the x axis logarithmic with a tick at each value, such as a width or a waiting time."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def legend(figure: Figure, entries: Mapping[str, Line2D], caption: str) -> None:
    """Add a legend below all panels; its caption explains bars and bands."""
    letters = int(figure.get_figwidth() * 13)  # in a line
    longest = max(map(len, entries))
    columns = max(1, int(figure.get_figwidth() * 13 / (longest + 9)))
    rows = math.ceil(len(entries) / columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, rows - 3))  # the panels keep their size
    shown = figure.legend(
        entries.values(),
        entries,
        loc="outside lower center",
        ncols=math.ceil(len(entries) / rows),
        frameon=False,
        fontsize="small",
        title="\n".join(line for part in caption.split("\n") for line in textwrap.wrap(part, letters)),
        title_fontsize="small",
        handlelength=3.2,
    )
    shown.get_title().set_color(GREY)


def title(figure: Figure, text: str) -> None:
    """Write the headline of a figure at the left."""
    lines = textwrap.wrap(text, int(figure.get_figwidth() * 10))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize="large")


def unbroken(text: str) -> str:
    """Return a text in which a caption has no line breaks."""
    return text.replace(" ", "\xa0")


def replay_handles() -> dict[str, Line2D]:
    """Return the entries of a legend for the lines of `by_replay`."""
    grey = Stroke(GREY, "-", "o")
    return {
        f"{which} replay": Line2D([], [], **by_replay(grey, which == "with"), markersize=5)
        for which in ("without", "with")
    }


def handles(strokes: Mapping[str, Stroke], *, markers: bool = False, lines: bool = True) -> dict[str, Line2D]:
    """Return the entries of a legend by name, with or without their markers and lines."""
    return {
        name: Line2D(
            [],
            [],
            color=stroke.colour,
            linestyle=stroke.dashes if lines else "",
            marker=stroke.marker if markers else None,
            markersize=5,
        )
        for name, stroke in strokes.items()
    }
