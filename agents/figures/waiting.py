"""The cost of each schedule against the waiting time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from agents.analysis.waiting_comparison import WaitingComparison
from agents.figures import style


def draw(comparisons: Sequence[WaitingComparison], file: Path, *, heading: str = "CER") -> Path:
    """Draw the cost against the waiting time in one panel per comparison; other schedules are horizontal lines.

    Bars and bands are 95 % intervals over seeds.
    """
    columns = min(len(comparisons), 2)
    rows = math.ceil(len(comparisons) / columns)
    lines = max(sum(schedule.wait is None for schedule in one.schedules) for one in comparisons) + 1
    figure = style.blank(5.6 * columns, (4 + 0.2 * lines) * rows)
    for place, one in enumerate(comparisons):
        axes = figure.add_subplot(rows, columns, place + 1)
        fixed = sorted((schedule for schedule in one.schedules if schedule.wait is not None), key=lambda s: s.wait or 0)
        waits = [schedule.wait or 0 for schedule in fixed]
        axes.errorbar(
            waits,
            [schedule.cost.mean for schedule in fixed],
            [schedule.cost.half or 0 for schedule in fixed],
            color=style.COLOURS[0],
            marker="o",
            markersize=4,
            capsize=3,
            label="fixed waiting time",
        )
        others = [schedule for schedule in one.schedules if schedule.wait is None]
        for number, schedule in enumerate(others, 1):
            cost, colour = schedule.cost, style.COLOURS[number % len(style.COLOURS)]
            line = style.DASHES[number % len(style.DASHES)]
            axes.axhline(cost.mean, color=colour, linestyle=line, label=f"{schedule.name}: {cost.text('.1f')}")
            if cost.half is not None:
                axes.axhspan(cost.mean - cost.half, cost.mean + cost.half, color=colour, alpha=0.07, linewidth=0)
        style.places_axis(axes, waits)
        style.log_axis(axes.yaxis, [schedule.cost.mean for schedule in one.schedules])
        axes.set(xlabel="waiting time w (mega-batches)", ylabel=heading)
        axes.set_title(one.title, loc="left")
        style.plain(axes)
        axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    return file
