"""How much error more than the best that could be known, tick by tick.

The measure of comparison is the oracle of the same width where it was run, which trains from scratch on everything so
far at every tick; else the setting with the lowest sum of errors, which is known in hindsight alone. Both are those of
the same seed, so what the stream of a seed adds to either cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np

from agents.cells import Cell, headline, seeds_in_words
from agents.figures import look
from agents.figures.drawing import Drawing
from agents.figures.errors import curve
from agents.figures.panels import arrange, line_names


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """One panel for each width or waiting time, one line for each method and what else differs.

    Raises:
        ValueError: there is one setting alone, or none shares a seed with what it is compared with.
    """
    oracles = {cell.width: cell for cell in cells if cell.agent == "oracle"}
    drawn = [cell for cell in cells if cell.agent != "oracle"]
    best = min(drawn or cells, key=lambda cell: mean(cell.values(cell.measure.sum).values()))
    references = {cell.name: oracles.get(cell.width, best) for cell in drawn}
    if not any(references[cell.name] is not cell for cell in drawn):
        raise ValueError(
            f"regret of {len(drawn)} setting on {title}: there is nothing to compare with; run others on the same "
            "stream, or the agent 'oracle' with the same seeds"
        )
    kept = [cell for cell in drawn if cell.runs.keys() & references[cell.name].runs.keys()]
    if not any(references[cell.name] is not cell for cell in kept):
        raise ValueError(
            f"regret of {len(drawn)} settings on {title}: none shares a seed with {best.name}, which is the best; run "
            "them with the same seeds"
        )
    notes = [
        f"{cell.name}: left out, since it shares no seed with {references[cell.name].name}"
        for cell in drawn
        if cell not in kept
    ]
    panels, columns = arrange(kept)
    figure, grid = look.panels(
        len(panels),
        columns,
        (3.2, 2.5) if len(panels) > 1 else (7.0, 4.0),
        x="tick (mega-batches seen)",
        y=f"{cells[0].measure.name} above the best",
    )
    styles = look.styles(line_names(panels, cells))
    rows: list[dict[str, Any]] = []
    shared: list[Cell] = []  # the cells with the runs that are drawn
    for axes, panel in zip(grid, panels, strict=True):
        axes.axhline(0, color=look.GREY, linewidth=0.8)
        for name, cell in panel.lines.items():
            reference = references[cell.name]
            both = {seed: run for seed, run in cell.runs.items() if seed in reference.runs}
            shared.append(replace(cell, runs=both))
            regret = np.array([run.columns.errors - reference.runs[seed].columns.errors for seed, run in both.items()])
            if len(both) < len(cell.runs):
                seeds = f"{len(both)} of {len(cell.runs)} seeds"
                notes.append(f"{cell.name}: {seeds}, those that {reference.name} has, too")
            head = {"panel": panel.title, "line": name, "above": reference.name}
            rows += curve(axes, regret, styles[name], head, "regret")
        look.panel_title(axes, panel.title)
        look.ticks_axis(axes, len(cells[0].first.columns) - 1)
    # As high as the means need: a band over few seeds may be many times as wide.
    ends = [row["regret"] for row in rows]
    room = 0.1 * (max(ends) - min(ends)) or 0.1
    grid[0].set_ylim(min(ends) - room, max(ends) + room)
    above = sorted({references[cell.name].name for cell in kept})
    named = f"the best in hindsight, {best.name}" if above == [best.name] else "the oracle of the same width"
    if oracles and best.name in above:
        named += f", or {best.name} where there is none"
    look.title(figure, headline(title, kept))
    look.legend(
        figure,
        [look.handle(style) for style in styles.values()],
        list(styles),
        f"above {named}, seed by seed; " + seeds_in_words(shared, "bands"),
    )
    return Drawing(figure, rows, tuple(notes))
