"""What replay brings, and what it costs (figures 4 and 8 of the ALMA paper)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.lines import Line2D

from agents.cells import Cell, headline, seeds_in_words, within
from agents.figures import look
from agents.figures.drawing import Drawing
from agents.statistics import paired
from alma_env import Score

MEASURES: dict[str, tuple[str, Callable[[Score], float]]] = {
    "cer": ("CER", lambda score: score.cer),
    "comp": ("Comp (FLOPs)", lambda score: float(score.comp)),
}
WITHOUT = look.Style(look.COLOURS[0], "-", "o")
WITH = look.Style(look.COLOURS[1], "-", "s")


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """CER and Comp of each setting that was run with replay and without, one line for each.

    Raises:
        ValueError: there is no such setting.
    """
    pairs = _pairs(cells)
    if not pairs:
        raise ValueError(
            f"replay of {len(cells)} settings on {title}: none was run with replay and without; run the same again, "
            "with --replay or without it"
        )
    both = [cell for pair in pairs for cell in pair]
    names = within([without for without, _ in pairs])
    height = 0.26 * len(pairs) + 1.7
    figure = look.blank(9.2, height)
    grid = figure.subplots(1, 2, sharey=True)
    rows: list[dict[str, Any]] = []
    for name, (without, with_) in zip(names, pairs, strict=True):
        row: dict[str, Any] = {"setting": name}
        for key, (_, of) in MEASURES.items():
            difference = paired(with_.values(of), without.values(of))
            row |= {
                f"{key}_without": without.interval(of).mean,
                f"{key}_without_half": without.interval(of).half,
                f"{key}_with": with_.interval(of).mean,
                f"{key}_with_half": with_.interval(of).half,
                f"{key}_difference": None if difference is None else difference.mean,
                f"{key}_difference_half": None if difference is None else difference.half,
            }
        rows.append({**row, "seeds_without": len(without.runs), "seeds_with": len(with_.runs)})
    for axes, (key, (label, _)) in zip(grid, MEASURES.items(), strict=True):
        look.plain(axes)
        for place, row in enumerate(rows):
            axes.plot(
                [row[f"{key}_without"], row[f"{key}_with"]], [place, place], color="#BBBBBB", linewidth=2.5, zorder=0
            )
        for which, style in (("without", WITHOUT), ("with", WITH)):
            means = [row[f"{key}_{which}"] for row in rows]
            halves = [row[f"{key}_{which}_half"] or 0.0 for row in rows]
            filled = style.colour if which == "with" else "white"
            axes.errorbar(
                means,
                range(len(rows)),
                xerr=halves,
                fmt=style.marker,
                color=style.colour,
                markerfacecolor=filled,
                markersize=5,
                capsize=2,
                elinewidth=1,
            )
        look.log_axis(
            axes.xaxis, [row[f"{key}_{which}"] for row in rows for which in ("with", "without")], key == "comp"
        )
        axes.set_xlabel(label)
        axes.grid(axis="y", color="#EEEEEE")
    grid[0].set_yticks(range(len(rows)), names)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)
    look.title(figure, headline(title, [dataclasses.replace(cell, replay=False) for cell in both]))
    handles = [
        Line2D([], [], linestyle="", marker=style.marker, color=style.colour, markerfacecolor=face, markersize=6)
        for style, face in ((WITHOUT, "white"), (WITH, WITH.colour))
    ]
    look.legend(figure, handles, ["without replay", "with replay"], seeds_in_words(both))
    return Drawing(figure, rows)


def _pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """The cells that differ in replay alone: without, with."""
    with_ = {(cell.method, cell.width, cell.when): cell for cell in cells if cell.replay}
    keyed = [((cell.method, cell.width, cell.when), cell) for cell in cells if not cell.replay]
    return [(cell, with_[key]) for key, cell in keyed if key in with_]
