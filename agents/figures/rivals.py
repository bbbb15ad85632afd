"""The costs of a subject's rivals at each price, relative to that of the subject: a learned schedule, or any other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from agents.analysis.schedules.costs import RunPrices
from agents.analysis.schedules.priced_comparison import Rivalry
from agents.figures import style
from agents.figures.files import write

_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_MOST_COLUMNS = 6
_LONGEST_TITLE = 26  # characters above a panel
_OFFSET = 0.1  # between the rivals at one price, in the distance of two prices


def draw(rivalries: Sequence[Rivalry], file: Path) -> Path:
    """Draw one panel for each learner; bars are 95 % intervals of the difference, divided by the mean cost."""
    titles, rivals = (list(dict.fromkeys(getattr(one, name) for one in rivalries)) for name in ("runs", "rival"))
    reached = [1 - one.difference.mean / one.cost.mean for one in rivalries]
    rows = math.ceil(len(titles) / _MOST_COLUMNS)
    columns = math.ceil(len(titles) / rows)
    figure = style.blank(2.9 * columns, 3.0 * rows + 0.6)
    strokes = style.strokes(rivals)
    for place, title in enumerate(titles, 1):
        axes = figure.add_subplot(rows, columns, place)
        of_title = [one for one in rivalries if one.runs == title]
        prices = sorted({one.prices for one in of_title})
        axes.axhline(1, color="black", linewidth=0.8)
        for number, rival in enumerate(rivals):
            shown = [one for one in of_title if one.rival == rival]
            ratios = [1 - one.difference.mean / one.cost.mean for one in shown]
            halves = [(one.difference.half or 0) / one.cost.mean for one in shown]
            shift = (number - (len(rivals) - 1) / 2) * _OFFSET
            places = [prices.index(one.prices) + shift for one in shown]
            style.points(axes, places, ratios, halves, strokes[rival], rival if place == 1 else None)
        axes.set_yscale("log")
        axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axes.minorticks_off()
        axes.set_ylim(0.9 * min(0.9, *reached), 1.1 * max(2.0, *reached))
        labels, xlabel = _labels(prices)
        axes.set_xticks(range(len(prices)), labels)
        axes.set(xlabel=xlabel, ylabel="cost / cost of the subject" if (place - 1) % columns == 0 else "")
        axes.set_title(title if len(title) <= _LONGEST_TITLE else "\n".join(title.rsplit(", ", 1)), loc="left")
        style.plain(axes)
    figure.legend(frameon=False, loc="outside lower center", ncols=len(rivals))
    return write(figure, file)


def _labels(prices: Sequence[RunPrices]) -> tuple[list[str], str]:
    """Return the labels of the ticks and of the axis: only the price of memory where the price of a pass is one."""
    full_pass, memory = ({getattr(one, name) for one in prices} for name in RunPrices._fields)
    if memory == {0.0}:
        return [str(one) for one in prices], "errors that a full pass costs"
    if len(full_pass) == 1:
        labels = [f"{one.memory_price:g}" for one in prices]
        return labels, f"errors per tick that memory costs\n(a full pass: {full_pass.pop():g})"
    return [str(one) for one in prices], "errors that a full pass costs,\nand memory per tick"
