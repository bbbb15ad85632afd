"""All measures of each method side by side, as in the first version of the ALMA paper.

Each spoke is logarithmic, from the worst value of all that are drawn in the centre to the best at the rim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import numpy as np

from agents.cells import Cell, headline
from agents.figures import look
from agents.figures.drawing import Drawing
from agents.figures.panels import arrange, line_names
from agents.finished import FinishedRun
from agents.report import engineering

CENTRE = 0.12  # of the radius, so that the worst of all is not a point


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """One radar for each width and waiting time, one line for each method; the spokes are the same in all.

    Raises:
        ValueError: there is one setting alone.
    """
    if len(cells) < 2:
        raise ValueError(f"radar of one setting on {title}: it shows settings side by side; give at least two")
    measure = cells[0].measure
    spokes: dict[str, Callable[[FinishedRun], float]] = {
        measure.heading: lambda run: measure.sum(run.score),
        f"final {measure.name}": lambda run: run.score.final_error,
        "FLOPs of an answer": lambda run: mean(run.columns.inference_flops),
        "Mem": lambda run: float(run.score.mem),
        "Comp": lambda run: float(run.score.comp),
    }
    rows: list[dict[str, Any]] = [
        {
            "setting": cell.name,
            **{name: mean(map(of, cell.runs.values())) for name, of in spokes.items()},
            "seeds": len(cell.runs),
        }
        for cell in cells
    ]
    radii = {row["setting"]: [0.0] * len(spokes) for row in rows}
    rims = []
    for number, name in enumerate(spokes):
        values = [row[name] for row in rows]
        best, worst = min(values), max(values)
        rims.append(look.unbroken(f"{name} {_number(best)} … {_number(worst)};"))
        for row in rows:
            radii[row["setting"]][number] = _radius(row[name], best, worst)
    panels, columns = arrange(cells)
    lines = math.ceil(len(panels) / columns)
    columns = math.ceil(len(panels) / lines)
    figure = look.blank(max(2.7 * columns, 6.0), 2.6 * lines + 1.6)
    grid = figure.subplots(lines, columns, squeeze=False, subplot_kw={"projection": "polar"})
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    styles = look.styles(line_names(panels, cells))
    angles = np.linspace(0, 2 * math.pi, len(spokes) + 1)
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        for name, cell in panel.lines.items():
            own = radii[cell.name]
            axes.plot(
                angles, [*own, own[0]], **styles[name].line, marker=styles[name].marker, markersize=3, linewidth=1.3
            )
        axes.set_ylim(0, 1.02)
        axes.set_yticks([CENTRE, (1 + CENTRE) / 2, 1.0], [])
        axes.set_xticks(angles[:-1], [name.replace(" of ", "\nof ").replace("final ", "final\n") for name in spokes])
        for text, angle in zip(axes.get_xticklabels(), angles, strict=False):
            side = math.sin(angle)
            text.set(
                fontsize="x-small", color=look.GREY, ha="left" if side > 0.1 else "right" if side < -0.1 else "center"
            )
        axes.spines["polar"].set_color("#CCCCCC")
        axes.grid(color="#DDDDDD", linewidth=0.6)
        look.panel_title(axes, panel.title)
    look.title(figure, headline(title, cells))
    handles: list[Any] = [look.handle(style, marker=True) for style in styles.values()]
    ranges = " ".join(rims).removesuffix(";")
    look.legend(figure, handles, list(styles), f"means over seeds; rim … centre, logarithmic: {ranges}")
    return Drawing(figure, rows)


def _number(value: float) -> str:
    return engineering(value) if value >= 1000 else f"{value:.3g}"


def _radius(value: float, best: float, worst: float) -> float:
    """1 of the best, `CENTRE` of the worst."""
    if worst == best:
        return 1.0
    if best > 0:
        value, best, worst = math.log(value), math.log(best), math.log(worst)
    return CENTRE + (1 - CENTRE) * (worst - value) / (worst - best)
