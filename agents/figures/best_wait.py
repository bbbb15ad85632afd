"""The best waiting time, by the width of the network and the length of the stream.

The CER of a shorter stream is the sum of the first errors of a longer stream, because no learner uses the length of the
stream before its last tick. At that tick a learner would train once more; the figure leaves this last training out,
since the ledger of the longer stream does not contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import BoundaryNorm, ListedColormap
from numpy.typing import NDArray

from agents.analysis.seed_groups import SeedGroup
from agents.figures import style
from agents.figures.files import Drawing


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw one map per method: the waiting time with the lowest mean CER, by width and length of the stream.

    A field of the map is empty if the stream ends before the first training, where all waiting times have equal CER.

    Raises:
        ValueError: no method and width was run with several waiting times.
    """
    by_name: dict[str, dict[int | None, list[SeedGroup]]] = {}
    for group in groups:
        if group.wait is not None:
            name = group.method + ", replay" * group.replay
            by_name.setdefault(name, {}).setdefault(group.width, []).append(group)
    by_name = {
        name: {width: own for width, own in by_width.items() if len(own) > 1} for name, by_width in by_name.items()
    }
    by_name = {name: by_width for name, by_width in by_name.items() if by_width}
    if not by_name:
        raise ValueError(
            f"best-wait of {len(groups)} settings on {title}: no method and width was run with several waiting times; "
            "run several, for example --wait 1 10 50"
        )
    used = [group for by_width in by_name.values() for own in by_width.values() for group in own]
    waits = sorted({group.wait for group in used if group.wait is not None})
    widths = sorted({group.width or 0 for group in used})
    last = len(groups[0].first.columns) - 1
    # Every panel has all widths, so that panels in one row can be compared.
    columns = min(len(by_name), 3)
    lines = -(-len(by_name) // columns)
    figure = style.blank(3.4 * columns + 1.6, max((0.42 * len(widths) + 1.0) * lines + 0.5, 2.6))
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(by_name) :]:
        axes.remove()
    colours = ListedColormap(colormaps["cividis"](np.linspace(0, 1, len(waits))))
    rows: list[dict[str, Any]] = []
    notes = []
    for place, (axes, (name, by_width)) in enumerate(zip(grid.flat, by_name.items(), strict=False)):
        best = np.full((len(widths), last), np.nan)
        for width, own in by_width.items():
            if len({frozenset(group.runs) for group in own}) > 1:
                seeds = ", ".join(f"{len(group.runs)} at {group.when}" for group in own)
                notes.append(f"{name}, width {width}: the waiting times have different seeds, {seeds}")
            found = _best(name, width, own)
            waits_of_row = [row["best_wait"] for row in found]
            best[widths.index(width or 0)] = [np.nan if wait is None else waits.index(wait) for wait in waits_of_row]
            rows += found
        mesh = axes.pcolormesh(
            np.arange(last + 1) + 0.5,
            np.arange(len(widths) + 1) - 0.5,
            np.ma.masked_invalid(best),
            cmap=colours,
            norm=BoundaryNorm(np.arange(len(waits) + 1) - 0.5, len(waits)),
            rasterized=True,
        )
        powers = [10**power for power in range(6) if 10**power <= last]
        style.places_axis(axes, [*powers, *[last] * (last / powers[-1] >= 2)])
        axes.set(xlim=(0.5, last + 0.5), facecolor="#EEEEEE")
        axes.set_yticks(range(len(widths)), map(style.width_text, widths))
        style.panel_title(axes, name)
        lowest = place + columns >= len(by_name)
        axes.tick_params(labelbottom=lowest)
        if lowest:
            axes.set_xlabel("length of the stream (ticks)")
        if place % columns == 0:
            axes.set_ylabel("width")
    bar = figure.colorbar(mesh, ax=list(grid.flat[: len(by_name)]), ticks=range(len(waits)), label="best w")
    bar.ax.set_yticklabels([str(wait) for wait in waits])
    bar.ax.minorticks_off()
    style.title(figure, title)
    figure.supxlabel(
        "w with the lowest mean CER, the shortest of equal ones; light: before the first training, or one w only",
        fontsize="small",
        color=style.GREY,
    )
    return Drawing(figure, rows, tuple(notes))


def _best(name: str, width: int | None, own: Sequence[SeedGroup]) -> list[dict[str, Any]]:
    """Return a CSV row for each stream length 1..B with the best waiting time, None before the first training.

    The means are over the seeds that all waiting times share, or over the own seeds of each if they share none.
    """
    ordered = sorted(own, key=lambda group: group.wait or 0)
    shared = set.intersection(*(set(group.runs) for group in ordered))
    runs = [[run for seed, run in group.runs.items() if seed in shared or not shared] for group in ordered]
    cers: NDArray[np.float64] = np.array(
        [np.mean([run.columns.errors.cumsum() for run in of_wait], axis=0) for of_wait in runs]
    )  # (waits, B + 1)
    first = ordered[0].wait or 0
    rows = []
    for ticks in range(1, cers.shape[1]):
        place = cers[:, ticks].argmin()  # the shortest of equal waits
        best = ordered[place]
        rows.append(
            {
                "method": name,
                "width": width,
                "ticks": ticks,
                "best_wait": None if ticks < first else best.wait,
                "cer": float(cers[place, ticks]),
                "seeds": len(runs[place]),
            }
        )
    return rows
