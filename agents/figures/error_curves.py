"""The error at every tick (figures 1, 3 and 7 of the ALMA paper): what anytime learning is about.

The error is a step function: between two trainings the predictor does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from agents.cells import Cell, headline, seeds_in_words
from agents.figures import look
from agents.figures.drawing import Drawing
from agents.figures.panels import arrange, line_names
from agents.report import ERROR_RATE, Measure
from agents.statistics import band
from alma_env import Ledger

Lines = Mapping[str, NDArray[np.float64]]  # by name, the errors of their seeds (seeds, ticks + 1)


def draw(cells: Sequence[Cell], title: str, panels: str = "auto") -> Drawing:
    """One panel for each width or waiting time, see `arrange`; one line for each method and what else differs."""
    arranged, columns = arrange(cells, panels)
    made = [
        (
            panel.title,
            {name: np.array([run.columns.errors for run in cell.runs.values()]) for name, cell in panel.lines.items()},
        )
        for panel in arranged
    ]
    names, caption = line_names(arranged, cells), seeds_in_words(cells, "bands")
    return _draw(made, names, headline(title, cells), cells[0].measure, caption, columns)


def of_groups(groups: Mapping[str, Sequence[Ledger]], title: str, measure: Measure = ERROR_RATE) -> Drawing:
    """All in one panel, with the sums in its legend: what ``alma run``, ``show`` and ``arena`` draw.

    Args:
        groups: label → the ledgers of its seeds; the lengths of their streams may differ from label to label.
        title: headline.
        measure: what the errors are.
    """
    lines = {}
    for label, ledgers in groups.items():
        total = float(np.mean([measure.sum(ledger.score()) for ledger in ledgers]))
        errors = np.array([[row.error for row in ledger] for ledger in ledgers])
        lines[f"{label}: {measure.heading} {total:.{measure.digits[0]}f}"] = errors
    several = any(len(errors) > 1 for errors in lines.values())
    caption = "bands: 95 % interval over seeds" if several else "one seed each: no intervals"
    return _draw([("", lines)], list(lines), title, measure, caption, columns=1)


def _draw(
    made: Sequence[tuple[str, Lines]], names: Sequence[str], title: str, measure: Measure, caption: str, columns: int
) -> Drawing:
    figure, grid = look.panels(
        len(made),
        columns,
        (3.2, 2.5) if len(made) > 1 else (7.0, 4.0),
        x="tick (mega-batches seen)",
        y=f"test {measure.name}",
    )
    styles = look.styles(names)
    middles = [errors.mean(axis=0) for _, lines in made for errors in lines.values()]
    lowest, highest = min(map(np.min, middles)), max(map(np.max, middles))
    rows: list[dict[str, Any]] = []
    for axes, (panel, lines) in zip(grid, made, strict=True):
        for name, errors in lines.items():
            rows += curve(axes, errors, styles[name], {"panel": panel, "line": name}, measure.name)
        look.panel_title(axes, panel)
        look.ticks_axis(axes, max(map(len, middles)) - 1)
        look.error_axis(axes, measure, float(lowest), float(highest))
    look.title(figure, title)
    look.legend(figure, [look.handle(style) for style in styles.values()], list(styles), caption)
    return Drawing(figure, rows)


def curve(
    axes: Axes, values: NDArray[np.float64], style: look.Style, names: Mapping[str, str], measured: str
) -> list[dict[str, Any]]:
    """Draw the mean of (seeds, ticks + 1) as steps, with its band, and return the numbers."""
    middle, half = band(values)
    ticks = np.arange(len(middle))
    axes.step(ticks, middle, where="post", **style.line, linewidth=1.4)
    # The last step has no width.
    axes.plot(ticks[-1], middle[-1], style.marker, color=style.colour, markersize=4, clip_on=False)
    ends: list[tuple[Any, Any]] = [(None, None)] * len(middle)
    if half is not None:
        low, high = middle - half, middle + half
        axes.fill_between(ticks, low, high, step="post", color=style.colour, alpha=0.15, linewidth=0)
        ends = list(zip(low.tolist(), high.tolist(), strict=True))
    return [
        {**names, "tick": tick, measured: value, "low": low, "high": high, "seeds": len(values)}
        for tick, (value, (low, high)) in enumerate(zip(middle.tolist(), ends, strict=True))
    ]
