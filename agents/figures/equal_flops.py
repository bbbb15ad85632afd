"""Where the count of FLOPs changes the order of methods: Comp against the paper's count.

On the left is the ratio of the two counts of each setting. On the right, each point compares a setting with another
method at equal FLOPs, by the paper's count (x) and by Comp (y): see `agents.analysis.equal_flops`. In the shaded
quarters, the two counts order the two methods differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from agents.analysis.equal_flops import COUNTS, UNDECIDED, Cell, Opponent, cells
from agents.analysis.markdown import signed, table
from agents.analysis.seed_groups import SeedGroup, headline
from agents.figures import style
from agents.figures.files import Drawing

PAPER, COMP = "paper_flops", "Comp"
SAME, CHANGED = "same conclusion", "conclusion changes"


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw the ratio of Comp to the paper's count, and the differences between methods at equal FLOPs by both.

    Raises:
        ValueError: no two methods with the same schedule have equal FLOPs.
    """
    found = cells(groups)
    if not found:
        raise ValueError(
            f"equal-flops of {len(groups)} settings on {title}: no two methods with one schedule have equal FLOPs; "
            "run several methods at several widths, for example --agent sm ens --width 4 8 16 32"
        )
    heading = groups[0].measure.heading
    figure = style.blank(10.4, 4.6)
    left, right = figure.subplots(1, 2)
    methods = style.strokes(group.method for group in groups)
    _ratios(left, groups, methods)
    conclusions = _differences(right, found, heading)
    style.title(figure, headline(title, groups))
    handles = style.handles(methods, markers=True, lines=False)
    tested = any(one.tested for cell in found for one in cell.opponents)
    conclusion = (
        "a conclusion is lower, higher or undecided, by the 95 % interval" if tested else "one seed: no intervals"
    )
    left = "left: each setting; right: a setting minus another method at equal FLOPs, mean over seeds"
    style.legend(figure, handles | conclusions, f"{left}; {conclusion}")
    return Drawing(figure, [row for cell in found for row in _rows(cell)], (), _table(groups, found))


def _ratios(axes: Axes, groups: Sequence[SeedGroup], strokes: Mapping[str, style.Stroke]) -> None:
    style.plain(axes)
    spent = [group for group in groups if _mean(group, PAPER) > 0]
    for group in spent:
        stroke = strokes[group.method]
        x, y = _mean(group, PAPER), _mean(group, COMP) / _mean(group, PAPER)
        axes.plot(x, y, stroke.marker, color=stroke.colour, markersize=4.5, alpha=0.8)
    axes.axhline(1, color=style.GREY, linewidth=0.8)
    style.log_axis(axes.xaxis, [_mean(group, PAPER) for group in spent], letters=True)
    axes.set(xlabel="training FLOPs, as the paper counts", ylabel="Comp / the paper's count")


def _mean(group: SeedGroup, count: str) -> float:
    return group.interval(COUNTS[count]).mean


def _changes(one: Opponent, before: str = PAPER) -> bool:
    return one.verdict(before) != one.verdict(COMP)


def _differences(axes: Axes, found: Sequence[Cell], heading: str) -> dict[str, Line2D]:
    """Draw a point for each comparison, and return the entries of the legend."""
    style.plain(axes)
    opponents = [one for cell in found for one in cell.opponents]
    marks: dict[str, dict[str, Any]] = {
        SAME: {"marker": "o", "markersize": 3, "color": "#999999"},
        CHANGED: {"marker": "*", "markersize": 9, "color": style.COLOURS[1]},
    }
    for name, mark in marks.items():
        own = [one.differences for one in opponents if _changes(one) == (name == CHANGED)]
        axes.plot([one[PAPER].mean for one in own], [one[COMP].mean for one in own], linestyle="", **mark)
    reach = 1.3 * max(abs(one.differences[count].mean) for one in opponents for count in (PAPER, COMP)) or 1.0
    for x, y in ((-reach, 0.0), (0.0, -reach)):
        axes.add_patch(Rectangle((x, y), reach, reach, color=style.COLOURS[4], alpha=0.15, linewidth=0, zorder=0))
    axes.axline((0, 0), slope=1, color=style.GREY, linewidth=0.8, zorder=0)
    # Differences range from tens to a fraction of one.
    for axis in ("x", "y"):
        axes.set(**{f"{axis}scale": "symlog", f"{axis}lim": (-reach, reach)})
        getattr(axes, f"{axis}axis").set_major_formatter("{x:g}")
    axes.set(xlabel=f"difference of {heading} at equal paper_flops", ylabel=f"difference of {heading} at equal Comp")
    return {name: Line2D([], [], linestyle="", **mark) for name, mark in marks.items()}


def _rows(cell: Cell) -> list[dict[str, Any]]:
    rows = []
    for one in cell.opponents:
        row: dict[str, Any] = {"setting": cell.setting.name, "other": one.method}
        for count, interval in one.differences.items():
            name = count.lower().replace(" ", "_")
            row |= {f"at_{name}": interval.mean, f"at_{name}_half": interval.half, f"by_{name}": one.verdict(count)}
        rows.append({**row, "seeds": one.differences[COMP].n})
    return rows


def _table(groups: Sequence[SeedGroup], found: Sequence[Cell]) -> str:
    """Return three Markdown tables: what the counts charge, how often they disagree, and where the winner changes."""
    return f"{_shares(groups)}\n{_summary(found)}\n{_winners(found)}"


def _shares(groups: Sequence[SeedGroup]) -> str:
    rows = []
    for method in dict.fromkeys(group.method for group in groups):
        own = [group for group in groups if group.method == method and _mean(group, PAPER) > 0]
        if not own:
            continue
        ratios = [_mean(group, COMP) / _mean(group, PAPER) for group in own]
        gradients = [1 - _mean_phase(group, "training") / _mean(group, "training only") for group in own]
        phases = [
            [_mean_phase(group, phase) / _mean(group, COMP) for group in own] for phase in ("validation", "growth")
        ]
        rows.append(
            (
                method,
                _range(ratios, 3),
                *(_range([100 * part for part in one], 1, " %") for one in (gradients, *phases)),
            )
        )
    headings = (
        "method",
        "Comp / paper_flops",
        "training FLOPs that are not executed",
        "validation, of Comp",
        "growth, of Comp",
    )
    return table(headings, rows, right=range(1, 5)) + "\nThe range over widths, waiting times and replay.\n"


def _mean_phase(group: SeedGroup, phase: str) -> float:
    return group.interval(lambda score: score.comp_by_phase.get(phase, 0)).mean


def _range(values: Sequence[float], digits: int, unit: str = "") -> str:
    low, high = (signed(f"{value:.{digits}f}") for value in (min(values), max(values)))
    return low + unit if low == high else f"{low} to {high}{unit}"


def _summary(found: Sequence[Cell]) -> str:
    compared = [(cell.setting.name, one) for cell in found for one in cell.opponents]
    opponents = [one for _, one in compared]
    rows = []
    for count in COUNTS:
        if count != COMP:
            largest, other = max(compared, key=lambda pair: abs(_change(pair[1], count)))
            tested = [one for one in opponents if one.tested]
            decided = [one for one in tested if UNDECIDED not in (one.verdict(count), one.verdict(COMP))]
            rows.append(
                (
                    count,
                    str(len(opponents)),
                    str(sum(one.differences[count].mean * one.differences[COMP].mean < 0 for one in opponents)),
                    str(sum(_changes(one, count) for one in tested)) if tested else "–",
                    str(sum(_changes(one, count) for one in decided)) if tested else "–",
                    str(len(found)),
                    str(sum(cell.order(count)[0] != cell.order(COMP)[0] for cell in found)),
                    f"{largest} − {other.method}: "
                    + signed(f"{other.differences[count].text('+.2f')} to {other.differences[COMP].text('+.2f')}"),
                )
            )
    headings = (
        "Comp against", "comparisons", "order of the means changes", "conclusion changes", "conclusion is reversed",
        "cells", "winner changes", "largest change of a difference",
    )  # fmt: skip
    return table(headings, rows, right=range(1, 7))


def _change(one: Opponent, count: str) -> float:
    return one.differences[COMP].mean - one.differences[count].mean


def _winners(found: Sequence[Cell]) -> str:
    rows = []
    for cell in found:
        orders = {count: cell.order(count) for count in COUNTS}
        if len({order[0] for order in orders.values()}) > 1:
            rows.append((cell.setting.name, *(" < ".join(order) for order in orders.values())))
    if not rows:
        return "The winner is the same by all counts in every cell.\n"
    return table(("at the FLOPs of", *(f"order by {count}" for count in COUNTS)), rows)
