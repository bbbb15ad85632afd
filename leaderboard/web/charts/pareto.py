"""Pareto charts: CER against a cost, with the front of the submissions that no other submission dominates.

The leader has the smallest CER, and is the first of those that are equal. It is on the front, and its name is always
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from leaderboard.web.charts.axes import Frame, Scale, axes, linear, logarithmic, logarithmic_plain
from leaderboard.web.charts.numbers import count
from leaderboard.web.charts.svg import chart, element, number, path

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Box = tuple[float, float, float, float]  # left, top, right, bottom

MOST_OTHERS = 150  # dots outside the front, to keep pages small and dots distinguishable
MOST_ON_FRONT = 120  # dots of the front; its line goes through the whole front
_LETTER = 6.6  # approximate width of a letter of a label
_LEADER_LETTER = 10.0  # the label of the leader is larger on phones
_LONGEST_LABEL = 24


@dataclass(frozen=True)
class Cloud:
    """The points of a chart, one per submission, as arrays of shape (N,)."""

    ids: Indices
    cost: Floats  # Comp or Mem
    error: Floats  # CER


@dataclass(frozen=True)
class Selection:
    """The points of a cloud that are drawn, as indices."""

    front: Indices  # the whole front, the cheapest first
    front_dots: Indices  # of the front
    other_dots: Indices
    others: int  # all submissions outside the front, drawn or not
    leader: int | None  # None for an empty cloud


def front(cost: Floats, error: Floats) -> Indices:
    """Return the indices of the points that no other point dominates, the cheapest first.

    A point dominates another one if it is at least as good in cost and error, and better in one of them.

    >>> front(np.array([1.0, 2.0, 3.0, 2.0]), np.array([5.0, 4.0, 4.0, 6.0])).tolist()
    [0, 1]
    """
    if not len(cost):
        return np.zeros(0, np.int64)
    order = np.lexsort((error, cost))
    sorted_cost, sorted_error = cost[order], error[order]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_error)[:-1]))
    new = sorted_error < best_before
    # A point with the cost and the error of a front point is on the front as well. Equal points are adjacent here.
    leader = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    equal = (sorted_cost == sorted_cost[leader]) & (sorted_error == sorted_error[leader])
    chosen: Indices = order[equal].astype(np.int64)
    return chosen


def select(cloud: Cloud) -> Selection:
    """Select the points to draw: the front, and a limited number of other points over the whole range."""
    best = front(cloud.cost, cloud.error)
    is_other = np.ones(len(cloud.ids), bool)
    is_other[best] = False
    others = np.flatnonzero(is_other)
    cost = np.where(cloud.cost > 0, cloud.cost, np.nan)
    x = np.nan_to_num(_share(np.log(cost)))
    y = _share(cloud.error)
    dots = _thin(x, y, best, MOST_ON_FRONT)
    # The last points of the front are the leader and its equals, in the order of the cloud.
    leader = int(best[cloud.error[best].argmin()]) if len(best) else None
    if leader is not None and leader not in dots:
        dots = np.append(dots, leader)
    return Selection(best, dots, _thin(x, y, others, MOST_OTHERS), len(others), leader)


def _share(values: Floats) -> Floats:
    """Scale values to the range 0 to 1."""
    known = values[np.isfinite(values)]
    if not len(known) or known.max() == known.min():
        return np.zeros_like(values)
    shares: Floats = (values - known.min()) / (known.max() - known.min())
    return shares


def _thin(x: Floats, y: Floats, of: Indices, most: int) -> Indices:
    """Keep one point per cell of a grid, and coarsen the grid until at most ``most`` points remain, in their order."""
    cells = 64
    while len(of) > most:
        place = (x[of] * cells).astype(np.int64) * (cells + 1) + (y[of] * cells).astype(np.int64)
        owner = np.full((cells + 1) ** 2, -1)
        owner[place[::-1]] = np.arange(len(of))[::-1]  # written in reverse, so that the first point of a cell remains
        first = np.sort(owner[owner >= 0])
        kept: Indices = of[first] if cells > 1 else of[first][:most]
        of, cells = kept, max(1, cells * 7 // 8)
    return of


def draw(
    cloud: Cloud, selection: Selection, names: Mapping[int, str], *, cost_name: str, cost_unit: str, id: str
) -> Markup:
    """Draw the selected points with the names of their submissions by index, into a chart with an id."""
    frame = Frame()
    x = logarithmic(cloud.cost.tolist() or [1.0], frame.left, frame.x_end)
    low, high = (float(cloud.error.min()), float(cloud.error.max())) if len(cloud.error) else (0.0, 1.0)
    positive = low > 0  # a CER of 0 has no logarithm; all answers would be right, also the guess before any data
    y = (
        logarithmic_plain([low, high], frame.y_end, frame.top)
        if positive
        else linear(low, high, frame.y_end, frame.top, pad=0.08)
    )

    def dot(index: int, radius: float) -> Markup:
        cost, error = float(cloud.cost[index]), float(cloud.error[index])
        title = escape(f"{names[int(index)]}: CER {error:.2f}, {cost_name} {count(cost)}")
        # Not `element`, which is slower: a page has hundreds of dots.
        return Markup(
            f'<circle cx="{x(cost):.1f}" cy="{y(error):.1f}" r="{radius}" data-submission="{int(cloud.ids[index])}">'
            f"<title>{title}</title></circle>"
        )

    description = (
        f"Each dot is a submission. Dots further left have less {cost_name}, dots further down have less error. "
        f"The front has {len(selection.front)} of {len(cloud.ids)} submissions. The table below has its numbers."
    )
    return chart(
        frame.width,
        frame.height,
        f"CER against {cost_name}",
        description,
        axes(frame, x, y, f"{cost_name} ({cost_unit}, logarithmic)", "CER (logarithmic)" if positive else "CER"),
        _stairs(cloud, selection, frame, x, y),
        element("g", *(dot(i, 3.2) for i in selection.other_dots), class_="others"),
        element("g", *(dot(i, 5.0) for i in selection.front_dots), class_="front"),
        element("g", *_labels(cloud, selection, names, frame, x, y), class_="names", aria_hidden="true"),
        id=id,
    )


def _stairs(cloud: Cloud, selection: Selection, frame: Frame, x: Scale, y: Scale) -> Markup:
    """Draw the front as a line, and the dominated region as an area."""
    corners = [(x(float(cloud.cost[i])), y(float(cloud.error[i]))) for i in selection.front]
    if not corners:
        return Markup("")
    steps = [(corners[0][0], float(frame.top)), corners[0]]
    for left, right in pairwise(corners):
        steps += [(right[0], left[1]), right]
    steps.append((float(frame.x_end), corners[-1][1]))
    behind = element("path", d=path([*steps, (float(frame.x_end), float(frame.top))], closed=True), class_="behind")
    return behind + element("path", d=path(steps), class_="stairs")


def _labels(
    cloud: Cloud, selection: Selection, names: Mapping[int, str], frame: Frame, x: Scale, y: Scale
) -> list[Markup]:
    """Draw names next to dots of the front where there is space, and the leader's name in any case."""
    dots = [(x(float(cloud.cost[i])), y(float(cloud.error[i]))) for i in selection.front_dots]
    taken: list[Box] = [(dx - 6, dy - 6, dx + 6, dy + 6) for dx, dy in dots]
    written: list[Markup] = []
    named = reversed(list(zip(dots, selection.front_dots, strict=True)))
    # The name of the leader takes its place first.
    for (dot_x, dot_y), index in sorted(named, key=lambda one: one[1] != selection.leader):
        name = names[int(index)]
        name = name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
        is_leader = index == selection.leader
        width = len(name) * (_LEADER_LETTER if is_leader else _LETTER)
        places = [
            ("end", dot_x - 8, dot_y + 15),
            ("end", dot_x - 9, dot_y + 4),
            ("start", dot_x + 7, dot_y - 8),
            ("start", dot_x + 7, dot_y + 17),
        ]
        free = [place for place in places if _is_free(_box(place, width), frame, taken)]
        if not free and is_leader:  # above its dot, inside the frame
            free = [("end", min(float(frame.x_end), max(dot_x + width / 2, frame.left + 4 + width)), dot_y - 9)]
        if free:
            anchor, at_x, base = free[0]
            taken.append(_box(free[0], width))
            look = "leader" if is_leader else None
            written.append(element("text", name, x=number(at_x), y=number(base), text_anchor=anchor, class_=look))
    return written


def _box(place: tuple[str, float, float], width: float) -> Box:
    """Return the box of a text whose anchor is an end of its base line."""
    anchor, at_x, base = place
    left = at_x - width if anchor == "end" else at_x
    return left, base - 12, left + width, base + 3


def _is_free(box: Box, frame: Frame, taken: Sequence[Box]) -> bool:
    inside = box[0] >= frame.left + 4 and box[2] <= frame.x_end and frame.top <= box[1] and box[3] < frame.y_end
    return inside and not any(_overlap(box, other) for other in taken)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
