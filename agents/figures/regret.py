"""Regret: the error minus the error of a reference, tick by tick.

The reference is the oracle of the same width (of several, that of the same method) if it was run; it trains from
scratch on all mega-batches so far at every tick. Otherwise the reference is the setting with the lowest sum of errors
over the seeds that all settings share, which is known only in hindsight. Regret is computed per seed, so the effect of
a seed's stream on both errors cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption
from agents.analysis.statistics import lowest
from agents.figures import style
from agents.figures.error_curves import curve
from agents.figures.files import Drawing
from agents.figures.panels import arrange, line_names


def _oracle(group: SeedGroup, oracles: Sequence[SeedGroup], title: str) -> SeedGroup | None:
    """Return the oracle of the width of a setting, or None; of several oracles, the one of the same method."""
    same_width = [one for one in oracles if one.width == group.width]
    if len(same_width) < 2:
        return same_width[0] if same_width else None
    same = [one for one in same_width if one.setting.get("agent.of") == group.method_id]
    if len(same) != 1:
        names = ", ".join(one.name for one in same_width)
        raise ValueError(
            f"regret of {group.name} on {title}: {len(same_width)} oracles have its width, {names}; choose one with "
            "--where, or give the runs of one oracle"
        )
    return same[0]


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw one panel per width or waiting time, with one line per method and remaining difference.

    Raises:
        ValueError: there is only one setting, no setting shares a seed with its reference, or a setting has several
            oracles of its width, not one of which is of its method.
    """
    oracles = [group for group in groups if group.method_id == "oracle"]
    drawn = [group for group in groups if group.method_id != "oracle"]
    among = drawn or groups
    best = among[lowest({place: group.values(group.measure.sum) for place, group in enumerate(among)})]
    references = {group.name: _oracle(group, oracles, title) or best for group in drawn}
    if not any(references[group.name] is not group for group in drawn):
        raise ValueError(
            f"regret on {title}: there is no reference; run other settings on the same stream, or the agent 'oracle' "
            "with the same seeds"
        )
    kept = [group for group in drawn if group.runs.keys() & references[group.name].runs.keys()]
    if not any(references[group.name] is not group for group in kept):
        names = "; ".join(sorted({references[group.name].name for group in drawn}))
        raise ValueError(
            f"regret of {len(drawn)} settings on {title}: none shares a seed with its reference ({names}); run them "
            "with the same seeds"
        )
    notes = [
        f"{group.name}: left out, because it shares no seed with {references[group.name].name}"
        for group in drawn
        if group not in kept
    ]
    panels, columns = arrange(kept)
    titles, last = [panel.title for panel in panels], len(groups[0].first.columns) - 1
    figure, grid = style.tick_panels(titles, columns, last, f"{groups[0].measure.name} above the reference")
    strokes = style.strokes(line_names(panels, groups))
    rows: list[dict[str, Any]] = []
    shared: list[SeedGroup] = []  # the seed groups with only the drawn runs
    for axes, panel in zip(grid, panels, strict=True):
        axes.axhline(0, color=style.GREY, linewidth=0.8)
        for name, group in panel.lines.items():
            reference = references[group.name]
            common = {seed: run for seed, run in group.runs.items() if seed in reference.runs}
            shared.append(replace(group, runs=common))
            regret = np.array(
                [run.columns.errors - reference.runs[seed].columns.errors for seed, run in common.items()]
            )
            if len(common) < len(group.runs):
                seeds = f"{len(common)} of {len(group.runs)} seeds"
                notes.append(f"{group.name}: {seeds}, those of {reference.name}")
            head = {"panel": panel.title, "line": name, "above": reference.name}
            rows += curve(axes, regret, strokes[name], head, "regret")
    # The axis fits the means; a band over few seeds may be many times as wide.
    ends = [row["regret"] for row in rows]
    room = 0.1 * (max(ends) - min(ends)) or 0.1
    grid[0].set_ylim(min(ends) - room, max(ends) + room)
    above = sorted({references[group.name].name for group in kept})
    named = f"the best in hindsight, {best.name}" if above == [best.name] else "the oracle of the same width"
    if oracles and best.name in above:
        named += f", or {best.name} without an oracle"
    style.title(figure, headline(title, kept))
    caption = f"above {named}, seed by seed; {seeds_caption(shared, 'bands')}"
    style.legend(figure, style.handles(strokes), caption)
    return Drawing(figure, rows, tuple(notes))
