"""CER against what it costs, over widths and waiting times (figure 2 of the ALMA paper).

A line joins the widths of one method and waiting time. Parameters are the mean over the ticks, Mem / (B + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.lines import Line2D

from agents.cells import Cell, headline, seeds_in_words, within
from agents.figures import look
from agents.figures.drawing import Drawing
from alma_env import Score

AXES: dict[str, tuple[str, Callable[[Score], float]]] = {
    "flops": ("FLOPs in training", lambda score: float(score.comp_by_phase.get("training", 0))),
    "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
}


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """Two panels: CER against FLOPs in training, and against parameters."""
    figure, grid = look.panels(2, 2, (5.0, 4.2), x="", y="", shared=False)
    names = within(cells, width=False)
    lines: dict[str, list[Cell]] = {}
    for cell, name in zip(cells, names, strict=True):
        lines.setdefault(name, []).append(cell)
    styles = look.styles(lines)
    sizes = _sizes(cells)
    rows = [
        {
            "line": name,
            "method": cell.method,
            "width": cell.width,
            "when": cell.when,
            "replay": cell.replay,
            **{key: cell.interval(of).mean for key, (_, of) in AXES.items()},
            **interval_columns("cer", cell, lambda score: score.cer),
        }
        for name, alike in lines.items()
        for cell in alike
    ]
    for axes, (key, (label, _)) in zip(grid, AXES.items(), strict=True):
        for name, style in styles.items():
            own = [row for row in rows if row["line"] == name]
            halves = [row["cer_half"] or 0.0 for row in own]
            x, y = [row[key] for row in own], [row["cer"] for row in own]
            axes.errorbar(x, y, halves, **style.line, linewidth=1.2, capsize=2, elinewidth=0.8)
            axes.scatter(x, y, [sizes[row["width"]] for row in own], style.colour, style.marker, zorder=3)
        look.log_axis(axes.xaxis, [row[key] for row in rows], letters=True)
        look.log_axis(axes.yaxis, [row["cer"] for row in rows])
        axes.set_xlabel(label)
        axes.set_ylabel("CER")
    look.title(figure, headline(title, cells))
    handles: list[Any] = [look.handle(style, marker=True) for style in styles.values()]
    labels = list(styles)
    if len(sizes) > 1:
        handles += [
            Line2D([], [], color=look.GREY, linestyle="", marker="o", markersize=size**0.5) for size in sizes.values()
        ]
        labels += [f"width {width}" for width in sizes]
    look.legend(figure, handles, labels, seeds_in_words(cells))
    return Drawing(figure, rows)


def _sizes(cells: Sequence[Cell]) -> dict[int | None, float]:
    """Area of a marker in square points: the wider, the larger."""
    widths = sorted({cell.width for cell in cells}, key=lambda width: width or 0)
    return {width: 14.0 + 18.0 * place for place, width in enumerate(widths)} if len(widths) > 1 else {widths[0]: 26.0}


def interval_columns(name: str, cell: Cell, of: Callable[[Score], float]) -> dict[str, Any]:
    """A number of a cell as three columns: mean, half of its 95 % interval, seeds."""
    found = cell.interval(of)
    return {name: found.mean, f"{name}_half": found.half, "seeds": found.n}
