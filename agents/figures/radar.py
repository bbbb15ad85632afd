"""All measures of each method in one radar chart (first version of the ALMA paper).

Each spoke is logarithmic, from the worst drawn value near the centre to the best value at the rim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import numpy as np

from agents.analysis.measures import engineering
from agents.analysis.seed_groups import SeedGroup, headline
from agents.figures import style
from agents.figures.files import Drawing
from agents.figures.panels import arrange, line_names
from agents.runs.load import FinishedRun

CENTRE = 0.12  # radius of the worst value, so that a line of worst values is not a point


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw one radar per width and waiting time, with one line per method; all radars have the same scales.

    Raises:
        ValueError: there is only one setting.
    """
    if len(groups) < 2:
        raise ValueError(f"radar of one setting on {title}: it compares settings; give at least two")
    measure = groups[0].measure
    spokes: dict[str, Callable[[FinishedRun], float]] = {
        measure.heading: lambda run: measure.sum(run.score),
        f"final {measure.name}": lambda run: run.score.final_error,
        "FLOPs of an answer": lambda run: mean(run.columns.inference_flops),
        "Mem": lambda run: float(run.score.mem),
        "Comp": lambda run: float(run.score.comp),
    }
    rows: list[dict[str, Any]] = [
        {
            "setting": group.name,
            **{name: mean(map(of, group.runs.values())) for name, of in spokes.items()},
            "seeds": len(group.runs),
        }
        for group in groups
    ]
    radii: dict[str, list[float]] = {row["setting"]: [] for row in rows}
    ranges = []
    for name in spokes:
        values = [row[name] for row in rows]
        best, worst = min(values), max(values)
        ranges.append(style.unbroken(f"{name} {engineering(best)} … {engineering(worst)}"))
        for row in rows:
            radii[row["setting"]].append(_radius(row[name], best, worst))
    panels, columns = arrange(groups)
    lines = math.ceil(len(panels) / columns)
    columns = math.ceil(len(panels) / lines)
    figure = style.blank(max(2.7 * columns, 6.0), 2.6 * lines + 1.6)
    grid = figure.subplots(lines, columns, squeeze=False, subplot_kw={"projection": "polar"})
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    strokes = style.strokes(line_names(panels, groups))
    angles = np.linspace(0, 2 * math.pi, len(spokes) + 1)
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.set(theta_zero_location="N", theta_direction=-1)
        for name, group in panel.lines.items():
            own, stroke = radii[group.name], strokes[name]
            axes.plot(angles, [*own, own[0]], **stroke.line, marker=stroke.marker, markersize=3, linewidth=1.3)
        axes.set_ylim(0, 1.02)
        axes.set_yticks([CENTRE, (1 + CENTRE) / 2, 1.0], [])
        axes.set_xticks(angles[:-1], [name.replace(" of ", "\nof ").replace("final ", "final\n") for name in spokes])
        for text, angle in zip(axes.get_xticklabels(), angles, strict=False):
            side = math.sin(angle)
            align = "left" if side > 0.1 else "right" if side < -0.1 else "center"
            text.set(fontsize="x-small", color=style.GREY, ha=align)
        axes.spines["polar"].set_color("#CCCCCC")
        axes.grid(color="#DDDDDD", linewidth=0.6)
        style.panel_title(axes, panel.title)
    style.title(figure, headline(title, groups))
    caption = f"means over seeds; rim … centre, logarithmic: {'; '.join(ranges)}"
    style.legend(figure, style.handles(strokes, markers=True), caption)
    return Drawing(figure, rows)


def _radius(value: float, best: float, worst: float) -> float:
    """Return the radius of a value: 1 for the best, `CENTRE` for the worst."""
    if worst == best:
        return 1.0
    if best > 0:
        value, best, worst = math.log(value), math.log(best), math.log(worst)
    return CENTRE + (1 - CENTRE) * (worst - value) / (worst - best)
