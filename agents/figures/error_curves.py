"""The error at every tick (figures 1, 3 and 7 of the ALMA paper).

The error is a step function, because the predictor does not change between two trainings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from agents.analysis.measures import Measure
from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption
from agents.analysis.statistics import band
from agents.figures import style
from agents.figures.files import Drawing
from agents.figures.panels import arrange, line_names
from alma_env import Ledger

Lines = Mapping[str, NDArray[np.float64]]  # name -> errors (seeds, ticks + 1)


def draw(groups: Sequence[SeedGroup], title: str, panels: str = "auto") -> Drawing:
    """Draw one panel per width or waiting time, see `arrange`, with one line per method and remaining difference."""
    arranged, columns = arrange(groups, panels)
    curves = []
    for panel in arranged:
        lines = {
            name: np.array([run.columns.errors for run in group.runs.values()]) for name, group in panel.lines.items()
        }
        curves.append((panel.title, lines))
    names, caption = line_names(arranged, groups), seeds_caption(groups, "bands")
    return _draw(curves, names, headline(title, groups), groups[0].measure, caption, columns)


def of_groups(groups: Mapping[str, Sequence[Ledger]], title: str, measure: Measure) -> Drawing:
    """Draw all labels in one panel, with the sums of the errors in its legend: ``alma run``, ``show`` and ``arena``."""
    lines = {}
    for label, ledgers in groups.items():
        total = float(np.mean([measure.sum(ledger.score()) for ledger in ledgers]))
        errors = np.array([[row.error for row in ledger] for ledger in ledgers])
        lines[f"{label}: {measure.heading} {total:.{measure.digits[0]}f}"] = errors
    several = any(len(errors) > 1 for errors in lines.values())
    caption = "bands: 95 % interval over seeds" if several else "one seed each: no intervals"
    return _draw([("", lines)], list(lines), title, measure, caption, columns=1)


def _draw(
    curves: Sequence[tuple[str, Lines]], names: Sequence[str], title: str, measure: Measure, caption: str, columns: int
) -> Drawing:
    middles = [errors.mean(axis=0) for _, lines in curves for errors in lines.values()]
    lowest, highest = min(map(np.min, middles)), max(map(np.max, middles))
    last = max(map(len, middles)) - 1
    figure, grid = style.tick_panels([panel for panel, _ in curves], columns, last, f"test {measure.name}")
    strokes = style.strokes(names)
    rows: list[dict[str, Any]] = []
    for axes, (panel, lines) in zip(grid, curves, strict=True):
        for name, errors in lines.items():
            rows += curve(axes, errors, strokes[name], {"panel": panel, "line": name}, measure.name)
        style.error_axis(axes, measure, float(lowest), float(highest))
    style.title(figure, title)
    style.legend(figure, style.handles(strokes), caption)
    return Drawing(figure, rows)


def curve(
    axes: Axes, values: NDArray[np.float64], stroke: style.Stroke, names: Mapping[str, str], measured: str
) -> list[dict[str, Any]]:
    """Draw the mean of values (seeds, ticks + 1) as steps with its band, and return the CSV rows."""
    middle, half = band(values)
    ticks = np.arange(len(middle))
    axes.step(ticks, middle, where="post", **stroke.line, linewidth=1.4)
    # The last step has no width, so a marker shows it.
    axes.plot(ticks[-1], middle[-1], stroke.marker, color=stroke.colour, markersize=4, clip_on=False)
    ends: list[tuple[Any, Any]] = [(None, None)] * len(middle)
    if half is not None:
        low, high = middle - half, middle + half
        axes.fill_between(ticks, low, high, step="post", color=stroke.colour, alpha=0.15, linewidth=0)
        ends = list(zip(low.tolist(), high.tolist(), strict=True))
    return [
        {**names, "tick": tick, measured: value, "low": low, "high": high, "seeds": len(values)}
        for tick, (value, (low, high)) in enumerate(zip(middle.tolist(), ends, strict=True))
    ]
