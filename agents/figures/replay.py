"""CER and Comp with and without replay (figures 4 and 8 of the ALMA paper)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.lines import Line2D

from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption, short_names
from agents.analysis.statistics import paired_difference
from agents.figures import style
from agents.figures.files import Drawing
from alma_env import Score

MEASURES: dict[str, tuple[str, Callable[[Score], float]]] = {
    "cer": ("CER", lambda score: score.cer),
    "comp": ("Comp (FLOPs)", lambda score: score.comp),
}
MARKERS: dict[str, dict[str, Any]] = {
    "without": {"linestyle": "", "marker": "o", "color": style.COLOURS[0], "markerfacecolor": "white"},
    "with": {"linestyle": "", "marker": "s", "color": style.COLOURS[1], "markerfacecolor": style.COLOURS[1]},
}


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw CER and Comp of each setting that was run with and without replay, one line per setting.

    Raises:
        ValueError: no setting was run with and without replay.
    """
    pairs = _pairs(groups)
    if not pairs:
        raise ValueError(
            f"replay of {len(groups)} settings on {title}: none was run with and without replay; run one again "
            "with --replay or without it"
        )
    both = [group for pair in pairs for group in pair]
    names = short_names([without for without, _ in pairs])
    figure = style.blank(9.2, 0.26 * len(pairs) + 1.7)
    grid = figure.subplots(1, 2, sharey=True)
    rows: list[dict[str, Any]] = []
    for name, (without, with_) in zip(names, pairs, strict=True):
        row: dict[str, Any] = {"setting": name}
        for key, (_, of) in MEASURES.items():
            difference = paired_difference(with_.values(of), without.values(of))
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
        style.plain(axes)
        for place, row in enumerate(rows):
            ends = [row[f"{key}_{which}"] for which in MARKERS]
            axes.plot(ends, [place, place], color="#BBBBBB", linewidth=2.5, zorder=0)
        for which, marker in MARKERS.items():
            means = [row[f"{key}_{which}"] for row in rows]
            halves = [row[f"{key}_{which}_half"] or 0.0 for row in rows]
            axes.errorbar(means, range(len(rows)), xerr=halves, **marker, markersize=5, capsize=2, elinewidth=1)
        style.log_axis(axes.xaxis, [row[f"{key}_{which}"] for row in rows for which in MARKERS], key == "comp")
        axes.set_xlabel(label)
        axes.grid(axis="y", color="#EEEEEE")
    grid[0].set_yticks(range(len(rows)), names)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)
    style.title(figure, headline(title, [dataclasses.replace(group, replay=False) for group in both]))
    handles = {f"{which} replay": Line2D([], [], **marker, markersize=6) for which, marker in MARKERS.items()}
    style.legend(figure, handles, seeds_caption(both))
    return Drawing(figure, rows)


def _pairs(groups: Sequence[SeedGroup]) -> list[tuple[SeedGroup, SeedGroup]]:
    """Return the pairs of seed groups that differ only in replay: (without, with)."""
    without, with_ = (
        {(group.method, group.width, group.when): group for group in groups if group.replay == replay}
        for replay in (False, True)
    )
    return [(group, with_[key]) for key, group in without.items() if key in with_]
