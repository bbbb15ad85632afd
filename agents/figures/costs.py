"""Errors against costs: a line joins the widths of one method and schedule (figures 2 and 5 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agents.analysis.measures import PERPLEXITY
from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption, short_names
from agents.figures import style
from agents.figures.files import Drawing
from alma_env import Score

Of = Callable[[Score], float]
TOGETHER = 8  # most lines that a reader distinguishes in one panel; with more lines each method has its own panel


def draw_tradeoff(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """CER against training FLOPs and against parameters (figure 2).

    FLOPs are the paper's: 6 per forward multiply-add of a training example, plus growth, without validation.
    """
    return _draw(groups, title, ("CER", lambda score: score.cer), ("training_flops", "parameters"))


def draw_perplexity(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Average perplexity over ticks 1..B against parameters, training FLOPs, and seconds (figure 5).

    FLOPs are those of `draw_tradeoff`. The seconds depend on the machines that computed the runs.
    """
    measured = (PERPLEXITY.heading, PERPLEXITY.sum)
    return _draw(groups, title, measured, ("parameters", "training_flops", "seconds"))


COSTS: dict[str, tuple[str, Of]] = {
    "training_flops": ("training FLOPs, as the paper counts", lambda score: float(score.paper_flops)),
    "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
    "seconds": ("seconds, evaluation included", lambda score: score.seconds),
}


def _draw(groups: Sequence[SeedGroup], title: str, measured: tuple[str, Of], keys: Sequence[str]) -> Drawing:
    """One panel per cost; with many lines a row of panels per cost, one panel per method.

    Args:
        groups: seed groups of one stream.
        title: name of the stream.
        measured: name of the error, and the function that reads it from a score.
        keys: of `COSTS`, in the order of the panels.
    """
    name, of = measured
    costs = {key: COSTS[key] for key in keys}
    column = name.lower().replace(" ", "_")
    rows = [
        {
            "method": group.method,
            "width": group.width,
            "when": group.when,
            "replay": group.replay,
            **{key: group.interval(cost).mean for key, (_, cost) in costs.items()},
            **_interval(column, group, of),
        }
        for group in groups
    ]
    methods = list(dict.fromkeys(group.method for group in groups))
    by_method = len(methods) > 1 and len(set(short_names(groups, width=False))) > TOGETHER
    names = _names(groups, by_method)
    strokes, sizes = style.strokes(names), _sizes(groups)
    columns = len(methods) if by_method else len(costs)
    size = (3.0, 2.9) if by_method else (4.6, 4.0)
    figure = style.blank(size[0] * columns, size[1] * (len(costs) if by_method else 1) + 1.0)
    grid = figure.subplots(len(costs) if by_method else 1, columns, squeeze=False, sharey=True)
    for number, (key, (label, _)) in enumerate(costs.items()):
        for place, method in enumerate(methods if by_method else [""]):
            axes = grid[number, place] if by_method else grid[0, number]
            style.plain(axes)
            if by_method:
                axes.scatter([row[key] for row in rows], [row[column] for row in rows], 3.0, color="#C8C8C8", zorder=0)
                style.panel_title(axes, method if number == 0 else "")
            own = [(n, row) for n, row in zip(names, rows, strict=True) if row["method"] == method or not by_method]
            _lines(axes, own, (key, column), strokes, sizes)
            style.log_axis(axes.xaxis, [row[key] for row in rows], letters=True)
            axes.set_xlabel(label)
            if place == 0 and (by_method or number == 0):
                axes.set_ylabel(name)
    style.log_axis(grid[0, 0].yaxis, [row[column] for row in rows])
    style.title(figure, headline(title, groups))
    handles: list[Any] = [style.handle(stroke, marker=True) for stroke in strokes.values()]
    labels = list(strokes)
    if len(sizes) > 1:
        handles += [
            Line2D([], [], color=style.GREY, linestyle="", marker="o", markersize=size**0.5) for size in sizes.values()
        ]
        labels += [f"width {width}" for width in sizes]
    style.legend(figure, handles, labels, seeds_caption(groups) + "; light: the other methods" * by_method)
    return Drawing(figure, rows)


def _names(groups: Sequence[SeedGroup], by_method: bool) -> list[str]:
    if not by_method:
        return short_names(groups, width=False)
    replays = len({group.replay for group in groups}) > 1
    return [group.when + ", replay" * (replays and group.replay) for group in groups]


def _lines(
    axes: Axes,
    named: Sequence[tuple[str, dict[str, Any]]],
    keys: tuple[str, str],
    strokes: Mapping[str, style.Stroke],
    sizes: Mapping[int | None, float],
) -> None:
    for name in dict.fromkeys(name for name, _ in named):
        own, stroke = [row for other, row in named if other == name], strokes[name]
        x, y = ([row[key] for row in own] for key in keys)
        halves = [row[f"{keys[1]}_half"] or 0.0 for row in own]
        axes.errorbar(x, y, halves, **stroke.line, linewidth=1.2, capsize=2, elinewidth=0.8)
        axes.scatter(x, y, [sizes[row["width"]] for row in own], color=stroke.colour, marker=stroke.marker, zorder=3)


def _sizes(groups: Sequence[SeedGroup]) -> dict[int | None, float]:
    """Return the area of a marker in square points; it grows with the width."""
    widths = sorted({group.width for group in groups}, key=lambda width: width or 0)
    return {width: 14.0 + 14.0 * place for place, width in enumerate(widths)} if len(widths) > 1 else {widths[0]: 26.0}


def _interval(name: str, group: SeedGroup, of: Of) -> dict[str, Any]:
    """Return a number of a seed group as three columns: mean, half of its 95 % interval, number of seeds."""
    found = group.interval(of)
    return {name: found.mean, f"{name}_half": found.half, "seeds": found.n}
