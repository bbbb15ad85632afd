"""What answers are worth against what they cost: a line joins the widths of one method and schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agents.cells import Cell, headline, seeds_in_words, within
from agents.figures import look
from agents.figures.drawing import Drawing
from alma_env import Score

Of = Callable[[Score], float]
TOGETHER = 8  # lines that can be told apart in one panel; with more, each method has a panel of its own


def draw_costs(
    cells: Sequence[Cell], title: str, measured: tuple[str, Of], costs: Mapping[str, tuple[str, Of]]
) -> Drawing:
    """A row of panels, or one for each cost where there is a panel for each method.

    Args:
        cells: of one stream.
        title: its name.
        measured: what answers are worth: its name and where it is found in a score.
        costs: by their column in the CSV file: name, and where they are found in a score.
    """
    name, of = measured
    column = name.lower().replace(" ", "_")
    rows = [
        {
            "method": cell.method,
            "width": cell.width,
            "when": cell.when,
            "replay": cell.replay,
            **{key: cell.interval(cost).mean for key, (_, cost) in costs.items()},
            **_interval(column, cell, of),
        }
        for cell in cells
    ]
    methods = list(dict.fromkeys(cell.method for cell in cells))
    by_method = len(methods) > 1 and len(set(within(cells, width=False))) > TOGETHER
    names = _names(cells, by_method)
    styles, sizes = look.styles(names), _sizes(cells)
    columns = len(methods) if by_method else len(costs)
    size = (3.0, 2.9) if by_method else (4.6, 4.0)
    figure = look.blank(size[0] * columns, size[1] * (len(costs) if by_method else 1) + 1.0)
    grid = figure.subplots(len(costs) if by_method else 1, columns, squeeze=False, sharey=True)
    for number, (key, (label, _)) in enumerate(costs.items()):
        for place, method in enumerate(methods if by_method else [""]):
            axes = grid[number, place] if by_method else grid[0, number]
            look.plain(axes)
            if by_method:
                axes.scatter([row[key] for row in rows], [row[column] for row in rows], 3.0, color="#C8C8C8", zorder=0)
                look.panel_title(axes, method if number == 0 else "")
            own = [(n, row) for n, row in zip(names, rows, strict=True) if row["method"] == method or not by_method]
            _lines(axes, own, (key, column), styles, sizes)
            look.log_axis(axes.xaxis, [row[key] for row in rows], letters=True)
            axes.set_xlabel(label)
            if place == 0 and (by_method or number == 0):
                axes.set_ylabel(name)
    look.log_axis(grid[0, 0].yaxis, [row[column] for row in rows])
    look.title(figure, headline(title, cells))
    handles: list[Any] = [look.handle(style, marker=True) for style in styles.values()]
    labels = list(styles)
    if len(sizes) > 1:
        handles += [
            Line2D([], [], color=look.GREY, linestyle="", marker="o", markersize=size**0.5) for size in sizes.values()
        ]
        labels += [f"width {width}" for width in sizes]
    look.legend(figure, handles, labels, seeds_in_words(cells) + "; light: the other methods" * by_method)
    return Drawing(figure, rows)


def _names(cells: Sequence[Cell], by_method: bool) -> list[str]:
    if not by_method:
        return within(cells, width=False)
    replays = len({cell.replay for cell in cells}) > 1
    return [cell.when + ", replay" * (replays and cell.replay) for cell in cells]


def _lines(
    axes: Axes,
    named: Sequence[tuple[str, dict[str, Any]]],
    keys: tuple[str, str],
    styles: Mapping[str, look.Style],
    sizes: Mapping[int | None, float],
) -> None:
    for name in dict.fromkeys(name for name, _ in named):
        own, style = [row for other, row in named if other == name], styles[name]
        x, y = ([row[key] for row in own] for key in keys)
        halves = [row[f"{keys[1]}_half"] or 0.0 for row in own]
        axes.errorbar(x, y, halves, **style.line, linewidth=1.2, capsize=2, elinewidth=0.8)
        axes.scatter(x, y, [sizes[row["width"]] for row in own], color=style.colour, marker=style.marker, zorder=3)


def _sizes(cells: Sequence[Cell]) -> dict[int | None, float]:
    """Area of a marker in square points: the wider, the larger."""
    widths = sorted({cell.width for cell in cells}, key=lambda width: width or 0)
    return {width: 14.0 + 14.0 * place for place, width in enumerate(widths)} if len(widths) > 1 else {widths[0]: 26.0}


def _interval(name: str, cell: Cell, of: Of) -> dict[str, Any]:
    """A number of a cell as three columns: mean, half of its 95 % interval, seeds."""
    found = cell.interval(of)
    return {name: found.mean, f"{name}_half": found.half, "seeds": found.n}
