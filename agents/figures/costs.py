"""Errors against costs: a line joins the widths of one method and schedule (figure 2 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption, short_names
from agents.figures import style
from agents.figures.files import Drawing
from alma_env import Score

COSTS: dict[str, tuple[str, Callable[[Score], float]]] = {
    "training_flops": ("training FLOPs, as the paper counts", lambda score: score.paper_flops),
    "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
    "seconds": ("seconds, evaluation included", lambda score: score.seconds),
}
TOGETHER = 8  # most lines that a reader distinguishes in one panel; with more lines each method has its own panel


def draw_tradeoff(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """CER against training FLOPs and against parameters (figure 2).

    FLOPs are the paper's: 6 per forward multiply-add of a training example, plus growth, without validation.
    """
    return _draw(groups, title, ("training_flops", "parameters"))


def draw_perplexity(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Average perplexity over ticks 1..B against parameters, training FLOPs, and seconds: one point for each setting.

    FLOPs are those of `draw_tradeoff`. The seconds depend on the machines that computed the runs.
    """
    return _draw(groups, title, ("parameters", "training_flops", "seconds"))


def _draw(groups: Sequence[SeedGroup], title: str, costs: Sequence[str]) -> Drawing:
    """Draw one panel per cost of `COSTS`; with many lines a row of panels per cost, one panel per method."""
    measure = groups[0].measure
    column = measure.heading.lower().replace(" ", "_")
    rows: list[dict[str, Any]] = []
    for group in groups:
        error = group.interval(measure.sum)
        setting = {"method": group.method, "width": group.width, "when": group.when, "replay": group.replay}
        means = {cost: group.interval(COSTS[cost][1]).mean for cost in costs}
        rows.append({**setting, **means, column: error.mean, f"{column}_half": error.half, "seeds": error.n})
    methods = list(dict.fromkeys(group.method for group in groups))
    names = short_names(groups, width=False)
    by_method = len(methods) > 1 and len(set(names)) > TOGETHER
    if by_method:
        several = len({group.replay for group in groups}) > 1
        names = [group.when + ", replay" * (several and group.replay) for group in groups]
    strokes = style.strokes(names)
    widths = sorted({group.width for group in groups}, key=lambda width: width or 0)
    areas = {width: 14.0 + 14.0 * place if len(widths) > 1 else 26.0 for place, width in enumerate(widths)}
    panels = [(cost, method) for cost in costs for method in (methods if by_method else [""])]
    lines, columns = (len(costs), len(methods)) if by_method else (1, len(costs))
    width, height = (3.0, 2.9) if by_method else (4.6, 4.0)
    figure = style.blank(width * columns, height * lines + 1.0)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for place, (axes, (cost, method)) in enumerate(zip(grid.flat, panels, strict=True)):
        style.plain(axes)
        if by_method:
            axes.scatter([row[cost] for row in rows], [row[column] for row in rows], 3.0, color="#C8C8C8", zorder=0)
            style.panel_title(axes, method if place < columns else "")
        own = [(n, row) for n, row in zip(names, rows, strict=True) if row["method"] == method or not by_method]
        _lines(axes, own, cost, column, strokes, areas)
        style.log_axis(axes.xaxis, [row[cost] for row in rows], letters=True)
        axes.set_xlabel(COSTS[cost][0])
        if place % columns == 0:
            axes.set_ylabel(measure.heading)
    style.log_axis(grid[0, 0].yaxis, [row[column] for row in rows])
    style.title(figure, headline(title, groups))
    handles = style.handles(strokes, markers=True)
    if len(areas) > 1:
        dot: dict[str, Any] = {"color": style.GREY, "linestyle": "", "marker": "o"}
        handles |= {
            f"width {style.width_text(width)}": Line2D([], [], **dot, markersize=area**0.5)
            for width, area in areas.items()
        }
    style.legend(figure, handles, seeds_caption(groups) + "; light: the other methods" * by_method)
    return Drawing(figure, rows)


def _lines(
    axes: Axes,
    named: Sequence[tuple[str, dict[str, Any]]],
    cost: str,
    column: str,
    strokes: Mapping[str, style.Stroke],
    areas: Mapping[int | None, float],
) -> None:
    for name in dict.fromkeys(name for name, _ in named):
        own, stroke = [row for other, row in named if other == name], strokes[name]
        x, y = [row[cost] for row in own], [row[column] for row in own]
        halves = [row[f"{column}_half"] or 0.0 for row in own]
        axes.errorbar(x, y, halves, **stroke.line, linewidth=1.2, capsize=2, elinewidth=0.8)
        axes.scatter(x, y, [areas[row["width"]] for row in own], color=stroke.colour, marker=stroke.marker, zorder=3)
