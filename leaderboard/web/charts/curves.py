"""Error curves: the mean error over seeds at every tick, with a band of one standard deviation.

An error curve has steps, because an answer stays until the next tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from leaderboard.web.charts.axes import Frame, linear, logarithmic
from leaderboard.web.charts.axes import axes as draw_axes
from leaderboard.web.charts.svg import chart, element, path

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The error curve of one submission: numbers over seeds, of shape (B + 1,), at ticks 0 to B."""

    label: str
    mean: Floats
    deviation: Floats  # zeros for one seed
    lowest: Floats
    highest: Floats
    seeds: int

    @classmethod
    def of(cls, label: str, errors: Sequence[Sequence[float]]) -> Curve:
        """Return the curve of the errors of all seeds, from tick 0 on. Seeds of unequal lengths raise ValueError."""
        lengths = {len(of_seed) for of_seed in errors}
        if len(lengths) != 1:
            raise ValueError(f"lengths={sorted(lengths)}: seeds must have equal numbers of ticks; give all errors")
        table = np.array(errors, np.float64)
        deviation = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(table.shape[1])
        return cls(label, table.mean(axis=0), deviation, table.min(axis=0), table.max(axis=0), len(table))


def lines(curve: Curve) -> Markup:
    """Return a curve as lines of an HTML table: tick, mean, deviation, lowest, highest."""
    lines = []
    for tick, values in enumerate(zip(curve.mean, curve.deviation, curve.lowest, curve.highest, strict=True)):
        cells = "".join(f'<td class="number">{value:.4g}</td>' for value in values)
        lines.append(f'<tr><th scope="row" class="number">{tick}</th>{cells}</tr>')
    return Markup("".join(lines))


def steps(across: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps each value until the next place.

    >>> steps([0, 1, 2, 3], [9, 9, 5, 5])
    [(0, 9), (2, 9), (2, 5), (3, 5)]
    """
    corners = [(across[0], values[0])]
    for at, before, value in zip(across[1:], values, values[1:], strict=False):
        if value != before:
            corners += [(at, before), (at, value)]
    if corners[-1][0] != across[-1]:
        corners.append((across[-1], values[-1]))
    return corners


def draw(curves: Sequence[Curve], *, measure: str, is_rate: bool, id: str) -> Markup:
    """Draw one or two curves (the style sheet has colours for two) into a chart with an id.

    The axis of a rate starts at 0. Perplexities have a logarithmic axis, as in the paper.
    """
    frame = Frame(width=640, height=320)
    ticks = max(len(curve.mean) for curve in curves) - 1
    x = linear(0, max(1, ticks), frame.left, frame.x_end)
    tops = np.concatenate([curve.mean + curve.deviation for curve in curves])
    lows = np.concatenate([curve.mean for curve in curves])
    y = (
        linear(0.0, float(min(1.0, tops.max())) or 1.0, frame.y_end, frame.top)
        if is_rate
        else logarithmic([float(max(lows.min(), 1e-9)), float(tops.max())], frame.y_end, frame.top)
    )
    drawn = []
    for number, curve in enumerate(curves):
        across = [x(tick) for tick in range(len(curve.mean))]
        upper = [y(float(value)) for value in curve.mean + curve.deviation]
        lower = [y(float(value)) for value in np.maximum(curve.mean - curve.deviation, 0.0)]
        line = steps(across, [y(float(value)) for value in curve.mean])
        band = [*steps(across, upper), *reversed(steps(across, lower))]
        drawn.append(
            element(
                "g",
                element("title", curve.label),
                *([element("path", d=path(band, closed=True), class_="band")] if curve.seeds > 1 else []),
                element("path", d=path(line), class_="line"),
                class_=f"curve curve-{number + 1}",
            )
        )
    summary = "; ".join(
        f"{curve.label}: from {curve.mean[0]:.3g} at tick 0 to {curve.mean[-1]:.3g} at tick {len(curve.mean) - 1}"
        for curve in curves
    )
    suffix = "" if is_rate else " (logarithmic)"
    return chart(
        frame.width,
        frame.height,
        f"{measure[0].upper()}{measure[1:]} at every tick",
        f"{summary}. The table below the chart has the numbers.",
        draw_axes(frame, x, y, "mega-batches seen (ticks)", f"{measure}{suffix}"),
        *drawn,
        id=id,
    )
