"""The best waiting time, by the width of the network and the length of the stream.

The CER of a shorter stream is the sum of the first errors of a longer one: until its last tick, nobody knows how long a
stream is. (A learner would train once more at that tick; that answer is not in the ledger.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from agents.cells import Cell
from agents.figures import look
from agents.figures.drawing import Drawing


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """A map for each method: the waiting time of the lowest mean CER, over width and horizon.

    Where the stream ends before anyone has trained, all are the same, and nothing is drawn.

    Raises:
        ValueError: nothing was run with several waiting times.
    """
    groups: dict[str, dict[int | None, list[Cell]]] = {}
    for cell in cells:
        if cell.wait is not None:
            name = cell.method + ", replay" * cell.replay
            groups.setdefault(name, {}).setdefault(cell.width, []).append(cell)
    groups = {
        name: {width: alike for width, alike in by_width.items() if len(alike) > 1} for name, by_width in groups.items()
    }
    groups = {name: by_width for name, by_width in groups.items() if by_width}
    if not groups:
        raise ValueError(
            f"best-wait of {len(cells)} settings on {title}: no method and width was run with several waiting times; "
            "run some, as in --wait 1 10 50"
        )
    used = [cell for by_width in groups.values() for alike in by_width.values() for cell in alike]
    waits = sorted({cell.wait for cell in used if cell.wait is not None})
    widths = sorted({cell.width or 0 for cell in used})
    last = len(cells[0].first.columns) - 1
    # All panels have all widths, so that they are of one height, and can be compared along a line.
    columns = min(len(groups), 3)
    lines = -(-len(groups) // columns)
    figure = look.blank(3.4 * columns + 1.6, max((0.42 * len(widths) + 1.0) * lines + 0.5, 2.6))
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(groups) :]:
        axes.remove()
    colours = ListedColormap(colormaps["cividis"](np.linspace(0, 1, len(waits))))
    rows: list[dict[str, Any]] = []
    notes = []
    for place, (axes, (name, by_width)) in enumerate(zip(grid.flat, groups.items(), strict=False)):
        best = np.full((len(widths), last), np.nan)
        for width, alike in by_width.items():
            if len({frozenset(cell.runs) for cell in alike}) > 1:
                seeds = ", ".join(f"{len(cell.runs)} at {cell.when}" for cell in alike)
                notes.append(f"{name}, width {width}: means over other seeds at each waiting time, {seeds}")
            row, found = _best(name, width, alike)
            best[widths.index(width or 0)] = [np.nan if wait is None else waits.index(wait) for wait in row]
            rows += found
        _map(axes, best, widths, last)
        mesh = axes.pcolormesh(
            np.arange(last + 1) + 0.5,
            np.arange(len(widths) + 1) - 0.5,
            np.ma.masked_invalid(best),
            cmap=colours,
            norm=BoundaryNorm(np.arange(len(waits) + 1) - 0.5, len(waits)),
            rasterized=True,
        )
        look.panel_title(axes, name)
        lowest = place + columns >= len(groups)
        axes.tick_params(labelbottom=lowest)
        if lowest:
            axes.set_xlabel("length of the stream (ticks)")
        if place % columns == 0:
            axes.set_ylabel("width")
    bar = figure.colorbar(mesh, ax=list(grid.flat[: len(groups)]), ticks=range(len(waits)), label="best w")
    bar.ax.set_yticklabels([str(wait) for wait in waits])
    bar.ax.minorticks_off()
    look.title(figure, title)
    figure.supxlabel(
        "w of the lowest mean CER, of equals the shortest; light: nobody has trained, or not run with several w",
        fontsize="small",
        color=look.GREY,
    )
    return Drawing(figure, rows, tuple(notes))


def _best(name: str, width: int | None, alike: Sequence[Cell]) -> tuple[list[int | None], list[dict[str, Any]]]:
    """The best waiting time at each horizon 1..B, None while nobody has trained; and the same as lines of the CSV."""
    ordered = sorted(alike, key=lambda cell: cell.wait or 0)
    cers: NDArray[np.float64] = np.array(
        [np.mean([run.columns.errors.cumsum() for run in cell.runs.values()], axis=0) for cell in ordered]
    )  # (waits, B + 1)
    best = cers.argmin(axis=0)  # of equals the shortest wait
    first = min(cell.wait or 0 for cell in ordered)
    found: list[int | None] = [None if tick < first else ordered[best[tick]].wait for tick in range(1, cers.shape[1])]
    rows = [
        {
            "method": name,
            "width": width,
            "ticks": tick,
            "best_wait": wait,
            "cer": float(cers[best[tick], tick]),
            "seeds": len(ordered[best[tick]].runs),
        }
        for tick, wait in enumerate(found, start=1)
    ]
    return found, rows


def _map(axes: Axes, best: NDArray[np.float64], widths: Sequence[int], last: int) -> None:
    axes.set_facecolor("#EEEEEE")
    axes.set_xscale("log")
    axes.set_xlim(0.5, last + 0.5)
    places = [place for power in range(6) for place in (10**power,) if place <= last]
    axes.xaxis.set_major_locator(
        FixedLocator([float(place) for place in places] + [float(last)] * (last / places[-1] >= 2))
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(widths)), [str(width) for width in widths])
