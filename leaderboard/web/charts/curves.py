"""Error curves: the error at every tick, mean over seeds, with a band of one standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from leaderboard.web.charts.axes import Frame, linear, logarithmic
from leaderboard.web.charts.axes import axes as draw_axes
from leaderboard.web.charts.svg import element, path, picture

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The errors of one submission.

    Attributes:
        label: its name.
        mean: over seeds, of every tick from 0.
        deviation: standard deviation over seeds; zeros where there is one seed.
        lowest: over seeds.
        highest: over seeds.
        seeds: how many.
    """

    label: str
    mean: Floats
    deviation: Floats
    lowest: Floats
    highest: Floats
    seeds: int

    @classmethod
    def of(cls, label: str, errors: Sequence[Sequence[float]]) -> Curve:
        """Of the errors of all seeds, each from tick 0 on.

        Raises:
            ValueError: there is no seed, or they have different ticks.
        """
        lengths = {len(of_seed) for of_seed in errors}
        if len(lengths) != 1:
            raise ValueError(f"seeds with {sorted(lengths)} errors: a curve needs one and the same number of ticks")
        table = np.array(errors, np.float64)
        deviation = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(table.shape[1])
        return cls(label, table.mean(axis=0), deviation, table.min(axis=0), table.max(axis=0), len(table))


def lines(curve: Curve) -> Markup:
    """The numbers of a curve as lines of a table: tick, mean, deviation, lowest, highest."""
    columns = (curve.mean, curve.deviation, curve.lowest, curve.highest)
    return Markup("").join(
        Markup(f'<tr><th scope="row" class="number">{tick}</th>{cells}</tr>')
        for tick, cells in enumerate(
            "".join(f'<td class="number">{value:.4g}</td>' for value in values) for values in zip(*columns, strict=True)
        )
    )


def draw(curves: Sequence[Curve], *, measure: str, is_rate: bool, id: str) -> Markup:
    """The picture of one or two curves.

    Args:
        curves: to draw; the style sheet knows colours for two.
        measure: what the error is: ``test error``, ``perplexity``.
        is_rate: errors are rates, whose axis begins at 0; others get a logarithmic axis, as the paper's perplexities.
        id: of the picture on the page.
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
        places = [x(tick) for tick in range(len(curve.mean))]
        upper = [y(float(value)) for value in curve.mean + curve.deviation]
        lower = [y(float(value)) for value in np.maximum(curve.mean - curve.deviation, 0.0)]
        line = [(place, y(float(value))) for place, value in zip(places, curve.mean, strict=True)]
        band = [*zip(places, upper, strict=True), *reversed(list(zip(places, lower, strict=True)))]
        drawn.append(
            element(
                "g",
                element("title", curve.label),
                *([element("path", d=path(band, closed=True), class_="band")] if curve.seeds > 1 else []),
                element("path", d=path(line), class_="line"),
                class_=f"curve curve-{number + 1}",
            )
        )
    told = "; ".join(
        f"{curve.label}: from {curve.mean[0]:.3g} at tick 0 to {curve.mean[-1]:.3g} at tick {len(curve.mean) - 1}"
        for curve in curves
    )
    suffix = "" if is_rate else " (logarithmic)"
    return picture(
        frame.width,
        frame.height,
        f"{measure[0].upper()}{measure[1:]} at every tick",
        f"{told}. The numbers stand in the table below the picture.",
        draw_axes(frame, x, y, "mega-batches seen (ticks)", f"{measure}{suffix}"),
        *drawn,
        id=id,
    )
