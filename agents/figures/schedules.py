"""The error of schedules against their FLOPs, in recorded runs: what replay, stopping and fixed waits cost and save."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes

from agents.analysis.schedules.costs import ScheduleCosts
from agents.analysis.schedules.names import RECOMMENDED, plain_wait
from agents.analysis.statistics import Interval
from agents.figures import style
from agents.figures.files import write

_NEAR = 0.05  # of the logarithms of two CERs
_BEHIND = 0.01  # the same, where a text on the left would be on the circle
KINDS = ("fixed wait", "geometric", "geometric, replay of a tenth", "geometric, replay of all")


def draw(panels: Mapping[str, Sequence[ScheduleCosts]], file: Path) -> Path:
    """Draw a point for each schedule, in one panel per title; bars are 95 % intervals over seeds."""
    rows = 1 if len(panels) <= 3 else 2
    columns = math.ceil(len(panels) / rows)
    figure = style.blank(4.2 * columns, 4.2 * rows)
    strokes = style.strokes(KINDS)
    for place, (title, schedules) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, place)
        rule = [(_passes(one), mean(one.cer.values())) for one in schedules if one.schedule == RECOMMENDED]
        for number, kind in enumerate(KINDS):
            points = [one for one in schedules if _kind(one.schedule) == kind]
            cers = [Interval.of(list(one.cer.values())) for one in points]
            means, halves = [cer.mean for cer in cers], [cer.half or 0 for cer in cers]
            passes = [_passes(one) for one in points]
            style.points(axes, passes, means, halves, strokes[kind], kind if place == 1 else None)
            if number == 0:
                named = zip(points, cers, strict=True)
                _name_waits(
                    axes, {one.schedule: (_passes(one), cer.mean) for one, cer in named}, [cer for _, cer in rule]
                )
        for at in rule:
            axes.scatter(*at, s=170, facecolor="none", edgecolor="black", zorder=3)
            axes.annotate("the rule", at, (0, -17), textcoords="offset points", ha="center", weight="bold")
        style.log_axis(axes.yaxis, [cer for one in schedules for cer in one.cer.values()])
        axes.set_xlim(left=0)
        axes.set(xlabel="FLOPs (full passes)", ylabel="CER" if place % columns == 1 or columns == 1 else "")
        axes.set_title(title, loc="left")
        style.plain(axes)
    figure.legend(frameon=False, loc="outside lower center", ncols=(1, 2, len(KINDS))[min(columns, 3) - 1])
    return write(figure, file)


def _name_waits(axes: Axes, points: Mapping[str, tuple[float, float]], rule: Sequence[float]) -> None:
    """Write waiting times beside their points; above and below where points, or the circle of the rule, are near."""
    for schedule, (passes, cer) in points.items():
        others = [*(other for _, other in points.values()), *rule]
        near = [other for other in others if other != cer and abs(math.log(other / cer)) < _NEAR]
        behind = any(abs(math.log(other / cer)) < _BEHIND for other in rule)
        side = "center" if not near or behind else "bottom" if cer > min(near) else "top"
        up = 3 if side == "bottom" and min(near) in rule else 0  # points of the page: clear of the circle
        place: dict[str, Any] = {"xytext": (7, 0), "ha": "left"} if behind else {"xytext": (-6, up), "ha": "right"}
        name = f"w = {plain_wait(schedule)}"
        axes.annotate(name, (passes, cer), **place, textcoords="offset points", va=side, fontsize="small")


def _kind(schedule: str) -> str | None:
    if plain_wait(schedule):
        return KINDS[0]
    if not schedule.startswith("geometric"):
        return None
    replay = re.search(",replay=(all|last)", schedule)
    return KINDS[1] if not replay else KINDS[3] if replay[1] == "all" else KINDS[2]


def _passes(one: ScheduleCosts) -> float:
    return mean(one.passes.values())
