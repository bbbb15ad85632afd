"""CER against Comp with the Pareto front, and the cost of each method against the price of a teraFLOP.

On the left, a setting is on the front if no other setting has both a lower mean CER and less Comp. On the right, a
method has its lowest cost over all its widths and waiting times: CER + price · teraFLOPs, plus price · millions of
parameters if these have a price (`agents.analysis.prices`).
At high prices, small learners and learners that train rarely win.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from agents.analysis.prices import Prices
from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption
from agents.figures import style
from agents.figures.files import Drawing

LISTED = 12  # settings of the front that the legend names


def draw(groups: Sequence[SeedGroup], title: str, flops_price: float = 0.0, parameter_price: float = 0.0) -> Drawing:
    """Draw CER against Comp, and the cost of each method against the price of a teraFLOP.

    The prices are those of a teraFLOP and of a million parameters at each tick, in errors. ``flops_price`` is marked on
    the right, and the rows hold the costs at the prices.
    """
    prices = Prices(flops_price, parameter_price)
    rows = [_row(group, prices) for group in groups]
    front = _front(rows)
    for row in rows:  # the front includes settings that are equal in both
        row["front"] = any((row["cer"], row["comp"]) == (one["cer"], one["comp"]) for one in front)
    figure = style.blank(10.2, 4.6)
    left, right = figure.subplots(1, 2)
    strokes = style.strokes(row["method"] for row in rows)
    _points(left, rows, front, strokes)
    costs = _costs(right, rows, strokes, prices)
    if prices.flops > 0:
        right.axvline(prices.flops, color=style.GREY, linewidth=0.9, linestyle=":")
    style.title(figure, headline(title, groups))
    listed = [style.unbroken(f"{number}: {row['setting']}") for number, row in enumerate(front[:LISTED], start=1)]
    more = f" {len(front) - LISTED} more in the CSV" if len(front) > LISTED else ""
    caption = f"{seeds_caption(groups)}\nPareto front: {'; '.join(listed)}{more}{_prices_line(prices)}"
    style.legend(figure, style.handles(strokes, markers=True), caption)
    return Drawing(figure, rows, () if costs else ("no run spent FLOPs, so the figure has no prices",))


def _row(group: SeedGroup, prices: Prices) -> dict[str, Any]:
    cer, cost = group.interval(lambda score: score.cer), group.interval(prices.cost)
    return {
        "setting": group.name,
        "method": group.method,
        "cer": cer.mean,
        "cer_half": cer.half,
        "comp": group.interval(lambda score: score.comp).mean,
        "mem": group.interval(lambda score: score.mem).mean,
        "cost": cost.mean,
        "cost_half": cost.half,
        "seeds": cer.n,
    }


def _prices_line(prices: Prices) -> str:
    """Return the line of the caption that gives the prices; it is empty if both are 0."""
    parts = [f"{prices.flops:g} of a teraFLOP (dotted)"] * (prices.flops > 0)
    parts += [f"{prices.parameters:g} of a million parameters at each tick"] * (prices.parameters > 0)
    return f"\nprice in errors: {', '.join(parts)}" if parts else ""


def _front(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows on the Pareto front in the order of their Comp."""
    front: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["comp"], row["cer"])):
        if not front or row["cer"] < front[-1]["cer"]:
            front.append(row)
    return front


def _points(
    axes: Axes, rows: Sequence[dict[str, Any]], front: Sequence[dict[str, Any]], strokes: dict[str, style.Stroke]
) -> None:
    style.plain(axes)
    for method, stroke in strokes.items():
        own = [row for row in rows if row["method"] == method]
        comps, cers = [row["comp"] for row in own], [row["cer"] for row in own]
        halves = [row["cer_half"] or 0.0 for row in own]
        axes.errorbar(comps, cers, halves, fmt=stroke.marker, color=stroke.colour, markersize=4.5, elinewidth=0.7)
    comps, cers = [row["comp"] for row in front], [row["cer"] for row in front]
    axes.step(comps, cers, where="post", color="black", linewidth=1, zorder=0)
    below_left: dict[str, Any] = {"xytext": (-3, -5), "textcoords": "offset points", "ha": "right", "va": "top"}
    for number, row in enumerate(front[:LISTED], start=1):
        axes.annotate(str(number), (row["comp"], row["cer"]), **below_left, fontsize=8)
    axes.margins(0.1)  # room for the number below the lowest point
    style.log_axis(axes.xaxis, [row["comp"] for row in rows], letters=True)
    style.log_axis(axes.yaxis, [row["cer"] for row in rows])
    axes.set(xlabel="Comp (FLOPs)", ylabel="CER")


def _costs(axes: Axes, rows: Sequence[dict[str, Any]], strokes: dict[str, style.Stroke], given: Prices) -> bool:
    style.plain(axes)
    spent = [row["comp"] / 1e12 for row in rows if row["comp"] > 0]
    if not spent:
        axes.remove()
        return False
    spread = max(row["cer"] for row in rows)
    low, high = 0.01 * spread / max(spent), 10 * spread / min(spent)
    if given.flops > 0:
        low, high = min(low, given.flops / 2), max(high, given.flops * 2)
    prices = np.geomspace(low, high, 200)
    for method, stroke in strokes.items():
        own = [row for row in rows if row["method"] == method]
        cost = np.min(
            [row["cer"] + given.parameters * row["mem"] / 1e6 + prices * row["comp"] / 1e12 for row in own], axis=0
        )
        axes.plot(prices, cost, **stroke.line, linewidth=1.4)
    style.log_axis(axes.xaxis, prices, letters=True)
    costs = [float(cost) for line in axes.get_lines() for cost in np.asarray(line.get_ydata())]
    style.log_axis(axes.yaxis, costs, letters=True)
    axes.set(xlabel="price of a teraFLOP (errors)", ylabel="lowest CER + prices · costs")
    return True
