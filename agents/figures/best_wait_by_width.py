"""The best waiting time by width, with and without replay, on one stream or several.

A large marker is the best waiting time. A small marker is another one that the seeds cannot exclude, see
`agents.analysis.schedules.best_waits`. The place on the axis is the waiting time as a part of the stream, so streams of
different lengths can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from agents.analysis.markdown import signed, table
from agents.analysis.schedules.best_waits import BestWait, best_waits
from agents.analysis.seed_groups import SeedGroup
from agents.analysis.statistics import ALPHA
from agents.figures import style
from agents.figures.files import Drawing

SPREAD = 0.8  # of the distance between two widths, which the methods share


def draw(by_stream: Mapping[str, Sequence[SeedGroup]]) -> Drawing:
    """Draw one panel for each stream, and for replay if there are runs with replay.

    Raises:
        ValueError: no method and width was run with several waiting times.
    """
    panels: dict[tuple[str, bool], list[BestWait]] = {}
    for stream, groups in by_stream.items():
        for one in best_waits(groups):
            panels.setdefault((stream, one.replay), []).append(one)
    if not panels:
        raise ValueError(
            f"best-wait-by-width of {', '.join(by_stream)}: no method and width was run with several waiting times; "
            "run several, for example --wait 1 10 50"
        )
    found = [one for own in panels.values() for one in own]
    methods = list(dict.fromkeys(one.best.method for one in found))
    strokes = style.strokes(methods)
    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    figure = style.blank(5.0 * columns + 0.4, 3.5 * lines + 0.9)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    shares = [100 * wait / one.ticks for one in found for wait in one.waits]
    for axes, ((stream, replay), own) in zip(grid.flat, panels.items(), strict=False):
        style.panel_title(axes, f"{stream}, B = {own[0].ticks}" + ", replay" * replay)
        _panel(axes, own, methods, strokes)
        axes.set_ylim(min(shares) / 1.6, max(shares) * 1.6)
    grid[0, 0].set_ylabel("best waiting time w (part of the stream)")
    dot: dict[str, Any] = {"color": style.GREY, "linestyle": "", "marker": "o"}
    handles = style.handles(strokes, markers=True, lines=False)
    handles |= {"lowest mean": Line2D([], [], **dot, markersize=7)}
    if any(set(one.not_worse) - {one.wait, *one.untested} for one in found):
        handles["not excluded"] = Line2D([], [], **dot, markersize=3)
    if any(one.untested for one in found):
        handles["not tested: fewer than two common seeds"] = Line2D(
            [], [], **dot, markersize=3, markerfacecolor="white"
        )
    numbers = sorted({len(one.best.runs) for one in found})
    if numbers == [1]:
        caption = "one seed each: no tests"
    else:
        seeds = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        level = f"{ALPHA:.2f} / (number of w − 1)"
        caption = f"small: no other w has a lower CER, by one-sided paired t-tests at level {level}; {seeds} seeds"
    style.legend(figure, handles, caption)
    return Drawing(
        figure, [_row(stream, one) for (stream, _), own in panels.items() for one in own], (), _table(panels)
    )


def _panel(axes: Axes, own: Sequence[BestWait], methods: Sequence[str], strokes: Mapping[str, style.Stroke]) -> None:
    style.plain(axes)
    widths = sorted({one.width or 0 for one in own})
    step = SPREAD / max(len(methods), 1)
    for one in own:
        stroke = strokes[one.best.method]
        place = widths.index(one.width or 0) + step * (methods.index(one.best.method) - (len(methods) - 1) / 2)
        shares = [100 * wait / one.ticks for wait in one.not_worse]
        axes.plot([place] * len(shares), shares, stroke.marker, linestyle="-", color=stroke.colour, markersize=3)
        untested = [100 * wait / one.ticks for wait in one.untested]
        hollow: dict[str, Any] = {"linestyle": "", "color": stroke.colour, "markerfacecolor": "white"}
        axes.plot([place] * len(untested), untested, stroke.marker, **hollow, markersize=3)
        axes.plot(place, 100 * one.wait / one.ticks, stroke.marker, color=stroke.colour, markersize=7)
    waits = sorted({wait for one in own for wait in one.waits})
    axes.set_yscale("log")
    names = {100 * wait / own[0].ticks: f"{wait} ({100 * wait / own[0].ticks:.3g} %)" for wait in waits}
    axes.yaxis.set_major_locator(FixedLocator(list(names)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: names.get(share, "")))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(len(widths)), map(style.width_text, widths))
    axes.set_xlim(-0.5, len(widths) - 0.5)
    axes.set_xlabel("width")
    axes.grid(axis="y", color="#EEEEEE")
    axes.set_axisbelow(True)
    for place in range(1, len(widths)):
        axes.axvline(place - 0.5, color="#DDDDDD", linewidth=0.8)


def _row(stream: str, one: BestWait) -> dict[str, Any]:
    total = one.best.interval(one.best.measure.sum)
    column = one.best.measure.heading.lower().replace(" ", "_")
    return {
        "stream": stream,
        "method": one.best.method,
        "width": one.width,
        "replay": one.replay,
        "ticks": one.ticks,
        "waits": " ".join(map(str, one.waits)),
        "best_wait": one.wait,
        "not_excluded": " ".join(map(str, one.not_worse)),
        "untested": " ".join(map(str, one.untested)),
        column: total.mean,
        f"{column}_half": total.half,
        "seeds": total.n,
        "shortest_minus_next": None if one.shortest is None else one.shortest.mean,
        "shortest_minus_next_half": None if one.shortest is None else one.shortest.half,
        "shortest_minus_next_seeds": None if one.shortest is None else one.shortest.n,
    }


def _table(panels: Mapping[tuple[str, bool], Sequence[BestWait]]) -> str:
    """Return two Markdown tables by method and width: the best waiting times, and the CER of the two shortest ones."""
    found = [(stream, one) for (stream, _), own in panels.items() for one in own]
    widths = sorted({one.width or 0 for _, one in found})
    headings = ("stream", "method", *(f"width {style.width_text(width)}" for width in widths))
    best: dict[tuple[str, str], dict[int, str]] = {}
    shortest: dict[tuple[str, str], dict[int, str]] = {}
    for stream, one in found:
        name = one.method + ", replay" * one.replay
        best.setdefault((stream, name), {})[one.width or 0] = _waits(one)
        if one.shortest is not None:
            pair = f"{name}: w = {one.waits[0]} − w = {one.waits[1]}"
            shortest.setdefault((stream, pair), {})[one.width or 0] = signed(one.shortest.text("+.2f"))
    tables = [
        table(headings, [(*names, *(cells.get(width, "–") for width in widths)) for names, cells in rows.items()])
        for rows in (best, shortest)
    ]
    captions = (
        "Bold: the w with the lowest mean CER. Others: no other w has a lower CER by a one-sided paired t-test at "
        f"level {ALPHA:.2f} / (number of w − 1); \\*: fewer than two common seeds, no test.",
        "CER at the shortest w minus CER at the next longer one: mean ± 95 % interval over common seeds.",
    )
    return "\n".join(f"{text}\n{caption}\n" for text, caption in zip(tables, captions, strict=True))


def _waits(one: BestWait) -> str:
    """Return the confidence set of the best waiting time, with the best one in bold; a star means no test."""
    texts = []
    for wait in one.not_worse:
        other = f"{wait}\\*" if wait in one.untested else str(wait)
        texts.append(f"**{wait}**" if wait == one.wait else other)
    return ", ".join(texts)
