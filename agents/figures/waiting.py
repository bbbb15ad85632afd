"""The cost of each schedule against the waiting time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from agents.analysis.schedules.waiting_comparison import ComparedSchedule, WaitingComparison
from agents.figures import style
from agents.figures.files import write


def draw(comparisons: Sequence[WaitingComparison], file: Path, *, heading: str = "CER") -> Path:
    """Draw the cost against the waiting time in one panel per comparison; other schedules are horizontal lines.

    Waiting times with and without replay, or with different growth, are different lines.

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
        kinds: dict[str, list[ComparedSchedule]] = {}
        for schedule in fixed:
            kinds.setdefault(schedule.kind, []).append(schedule)
        others = [schedule for schedule in one.schedules if schedule.wait is None]
        strokes = style.strokes([*sorted(kinds), *(schedule.name for schedule in others)])
        for kind, of_kind in sorted(kinds.items()):
            axes.errorbar(
                [schedule.wait or 0 for schedule in of_kind],
                [schedule.cost.mean for schedule in of_kind],
                [schedule.cost.half or 0 for schedule in of_kind],
                color=strokes[kind].colour,
                marker=strokes[kind].marker,
                markersize=4,
                capsize=3,
                label="fixed waiting time" + f", {kind}" * bool(kind),
            )
        for schedule in others:
            cost, stroke = schedule.cost, strokes[schedule.name]
            axes.axhline(cost.mean, **stroke.line, label=f"{schedule.name}: {cost.text('.1f')}")
            if cost.half is not None:
                axes.axhspan(cost.mean - cost.half, cost.mean + cost.half, color=stroke.colour, alpha=0.07, linewidth=0)
        style.places_axis(axes, waits)
        style.log_axis(axes.yaxis, [schedule.cost.mean for schedule in one.schedules])
        axes.set(xlabel="waiting time w (mega-batches)", ylabel=heading)
        axes.set_title(one.title, loc="left")
        style.plain(axes)
        axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13))
    return write(figure, file)
