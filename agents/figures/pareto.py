"""CER against what it costs, with the Pareto front; and what an error costs where FLOPs have a price.

On the left, a setting is on the front if no other one has both a lower mean CER and less Comp. On the right, the
lowest cost of each method, CER + price · teraFLOPs (+ price · millions of parameters, see `agents.waiting.prices`),
over all of its widths and waiting times, at every price of a teraFLOP: where it is high, small or idle learners win.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from agents.cells import Cell, headline, seeds_in_words, sized
from agents.figures import look
from agents.figures.drawing import Drawing
from agents.waiting.prices import Prices

LISTED = 12  # members of the front that the legend can name


def draw(cells: Sequence[Cell], title: str, flops_price: float | None = None, parameter_price: float = 0.0) -> Drawing:
    """Two panels: CER against Comp, and the cost of each method against the price of a teraFLOP.

    Args:
        cells: of one stream.
        title: its name.
        flops_price: of a teraFLOP, in errors: marked on the right, and in the rows each setting's cost at it.
        parameter_price: of a million parameters at each tick, in errors.

    Raises:
        ValueError: a price is negative.
    """
    prices = Prices(flops_price or 0.0, parameter_price)
    rows = [_row(cell, prices) for cell in cells]
    front = _front(rows)
    for row in rows:  # with those that are as good in both
        row["front"] = any((row["cer"], row["comp"]) == (one["cer"], one["comp"]) for one in front)
    figure = look.blank(10.2, 4.6)
    left, right = figure.subplots(1, 2)
    styles = look.styles(row["method"] for row in rows)
    _points(left, rows, front, styles)
    costs = _costs(right, rows, styles, prices)
    if prices.flops > 0:
        right.axvline(prices.flops, color=look.GREY, linewidth=0.9, linestyle=":")
    look.title(figure, headline(title, cells))
    handles: list[Any] = [look.handle(style, marker=True) for style in styles.values()]
    labels = list(styles)
    listed = [look.unbroken(f"{number}: {row['setting']};") for number, row in enumerate(front[:LISTED], start=1)]
    more = f" {len(front) - LISTED} more in the CSV" if len(front) > LISTED else ""
    caption = f"{seeds_in_words(cells)}\nPareto front: {' '.join(listed).removesuffix(';')}{more}{_in_words(prices)}"
    look.legend(figure, handles, labels, caption)
    return Drawing(figure, rows, () if costs else ("nothing was spent, so there is nothing to price",))


def _row(cell: Cell, prices: Prices) -> dict[str, Any]:
    cer, comp, mem = (cell.interval(of) for of in (_cer, _comp, _mem))
    cost = cell.interval(prices.cost)
    return {
        "setting": ", ".join([sized(cell), cell.when, *["replay"] * cell.replay]),
        "method": cell.method,
        "cer": cer.mean,
        "cer_half": cer.half,
        "comp": comp.mean,
        "mem": mem.mean,
        "cost": cost.mean,
        "cost_half": cost.half,
        "seeds": cer.n,
    }


def _cer(score: Any) -> float:
    return float(score.cer)


def _comp(score: Any) -> float:
    return float(score.comp)


def _mem(score: Any) -> float:
    return float(score.mem)


def _in_words(prices: Prices) -> str:
    """A line for the caption; none where nothing was given a price."""
    said = [f"{prices.flops:g} of a teraFLOP (dotted)"] * (prices.flops > 0)
    said += [f"{prices.parameters:g} of a million parameters at each tick"] * (prices.parameters > 0)
    return f"\nprice in errors: {', '.join(said)}" if said else ""


def _front(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that nothing beats in both, by Comp."""
    front: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["comp"], row["cer"])):
        if not front or row["cer"] < front[-1]["cer"]:
            front.append(row)
    return front


def _points(
    axes: Axes, rows: Sequence[dict[str, Any]], front: Sequence[dict[str, Any]], styles: dict[str, look.Style]
) -> None:
    look.plain(axes)
    for method, style in styles.items():
        own = [row for row in rows if row["method"] == method]
        axes.errorbar(
            [row["comp"] for row in own],
            [row["cer"] for row in own],
            [row["cer_half"] or 0.0 for row in own],
            fmt=style.marker,
            color=style.colour,
            markersize=4.5,
            elinewidth=0.7,
        )
    axes.step(
        [row["comp"] for row in front],
        [row["cer"] for row in front],
        where="post",
        color="black",
        linewidth=1,
        zorder=0,
    )
    for number, row in enumerate(front[:LISTED], start=1):
        axes.annotate(
            str(number),
            (row["comp"], row["cer"]),
            (-3, -5),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
        )
    look.log_axis(axes.xaxis, [row["comp"] for row in rows], letters=True)
    look.log_axis(axes.yaxis, [row["cer"] for row in rows])
    axes.margins(0.1)
    axes.set_xlabel("Comp (FLOPs)")
    axes.set_ylabel("CER")


def _costs(axes: Axes, rows: Sequence[dict[str, Any]], styles: dict[str, look.Style], charged: Prices) -> bool:
    look.plain(axes)
    spent = [row["comp"] / 1e12 for row in rows if row["comp"] > 0]
    if not spent:
        axes.remove()
        return False
    spread = max(row["cer"] for row in rows)
    low, high = 0.01 * spread / max(spent), 10 * spread / min(spent)
    if charged.flops > 0:
        low, high = min(low, charged.flops / 2), max(high, charged.flops * 2)
    prices = np.geomspace(low, high, 200)
    for method, style in styles.items():
        own = [row for row in rows if row["method"] == method]
        cost = np.min(
            [row["cer"] + charged.parameters * row["mem"] / 1e6 + prices * row["comp"] / 1e12 for row in own], axis=0
        )
        axes.plot(prices, cost, **style.line, linewidth=1.4)
    look.log_axis(axes.xaxis, prices, letters=True)
    costs = [float(cost) for line in axes.get_lines() for cost in np.asarray(line.get_ydata())]
    look.log_axis(axes.yaxis, costs, letters=True)
    axes.set_xlabel("price of a teraFLOP (errors)")
    axes.set_ylabel("lowest CER + prices · costs")
    return True
