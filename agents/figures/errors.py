"""The error at every tick (figures 1, 3 and 7 of the ALMA paper): what anytime learning is about.

The error is a step function: between two trainings the predictor does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from agents.cells import Cell, headline, seeds_in_words, within
from agents.figures import look
from agents.figures.drawing import Drawing
from agents.report import ERROR_RATE, Measure
from agents.statistics import band
from alma_env import Ledger

PANELS = ("auto", "width", "wait", "both", "none")


@dataclass(frozen=True)
class _Panel:
    """Lines that share axes: by name, the errors of their seeds (seeds, ticks + 1)."""

    title: str
    lines: Mapping[str, NDArray[np.float64]]


def draw(cells: Sequence[Cell], title: str, panels: str = "auto") -> Drawing:
    """One panel for each width or waiting time, one line for each method and what else differs.

    Args:
        cells: of one stream.
        title: its name.
        panels: what tells the panels apart: ``width``, ``wait``, ``both`` or ``none``; ``auto``: both where there are
            several methods of several widths and waiting times, else the one of which there are several.

    Raises:
        ValueError: there is no such choice.
    """
    if panels not in PANELS:
        raise ValueError(f"panels={panels!r}: choose one of {', '.join(PANELS)}")
    by_width, by_wait = _dimensions(cells, panels)
    found: dict[tuple[Any, ...], dict[str, NDArray[np.float64]]] = {}
    names = within(cells, width=not by_width, when=not by_wait)
    ordered = sorted(zip(cells, names, strict=True), key=lambda pair: _place(pair[0], by_width, by_wait))
    for cell, name in ordered:
        panel = found.setdefault((cell.width if by_width else None, cell.when if by_wait else None), {})
        panel[name] = np.array([run.columns.errors for run in cell.runs.values()])
    made = [_Panel(_title(place), lines) for place, lines in found.items()]
    # A row for each width, where every width has all waiting times.
    waits = len({place[1] for place in found})
    columns = waits if by_width and by_wait and len(found) % waits == 0 else 3
    return _draw(made, headline(title, cells), cells[0].measure, seeds_in_words(cells, "bands"), columns)


def _place(cell: Cell, by_width: bool, by_wait: bool) -> tuple[Any, ...]:
    width = (cell.width or 0) if by_width else 0
    return (width, cell.wait is None, cell.wait or 0, cell.when) if by_wait else (width,)


def _dimensions(cells: Sequence[Cell], panels: str) -> tuple[bool, bool]:
    """Whether the panels differ in width, and in the waiting time."""
    if panels != "auto":
        return panels in ("width", "both"), panels in ("wait", "both")
    widths, waits, rest = ({of(cell) for cell in cells} for of in (_width, _when, _rest))
    if len(widths) > 1 and len(waits) > 1:
        return True, len(rest) > 1
    return len(widths) > 1, len(waits) > 1 and len(rest) > 1


def _width(cell: Cell) -> Any:
    return cell.width


def _when(cell: Cell) -> Any:
    return cell.when


def _rest(cell: Cell) -> Any:
    return cell.method, cell.replay


def _title(place: tuple[Any, ...]) -> str:
    width, when = place
    parts = [*([f"width {width}"] if width is not None else []), *([when] if when is not None else [])]
    return ", ".join(parts)


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
    caption = "bands: 95 % interval over seeds" if several else ""
    return _draw([_Panel("", lines)], title, measure, caption, columns=1)


def _draw(made: Sequence[_Panel], title: str, measure: Measure, caption: str, columns: int) -> Drawing:
    figure, grid = look.panels(
        len(made),
        columns,
        (3.2, 2.5) if len(made) > 1 else (7.0, 4.0),
        x="tick (mega-batches seen)",
        y=f"test {measure.name}",
    )
    styles = look.styles(name for panel in made for name in panel.lines)
    middles = [errors.mean(axis=0) for panel in made for errors in panel.lines.values()]
    lowest, highest = min(map(np.min, middles)), max(map(np.max, middles))
    rows: list[dict[str, Any]] = []
    for axes, panel in zip(grid, made, strict=True):
        for name, errors in panel.lines.items():
            rows += _curve(axes, errors, styles[name], {"panel": panel.title, "line": name}, measure.name)
        axes.set_title(panel.title, fontsize="medium", loc="left")
        look.ticks_axis(axes, max(map(len, middles)) - 1)
        look.error_axis(axes, measure, float(lowest), float(highest))
    look.title(figure, title)
    look.legend(figure, [look.handle(style) for style in styles.values()], list(styles), caption)
    return Drawing(figure, rows)


def _curve(
    axes: Axes, errors: NDArray[np.float64], style: look.Style, names: Mapping[str, str], measured: str
) -> list[dict[str, Any]]:
    middle, half = band(errors)
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
        {**names, "tick": tick, measured: error, "low": low, "high": high, "seeds": len(errors)}
        for tick, (error, (low, high)) in enumerate(zip(middle.tolist(), ends, strict=True))
    ]
