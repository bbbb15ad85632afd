"""The Pareto picture: CER against what it costs. On the front stands who is beaten by nobody in both at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from leaderboard.web.charts.axes import Frame, Scale, axes, linear, logarithmic
from leaderboard.web.charts.numbers import count
from leaderboard.web.charts.svg import element, number, path, picture

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_OTHERS = 150  # dots beside the front: a page stays small, and more could not be told apart
MOST_ON_FRONT = 120  # dots of the front; its line is drawn through all
_LETTER = 6.6  # width of a letter of a label, about
_LONGEST_LABEL = 24


@dataclass(frozen=True)
class Cloud:
    """What the picture shows: one entry per submission.

    Attributes:
        ids: of the submissions.
        cost: Comp or Mem.
        error: CER.
    """

    ids: Indices
    cost: Floats
    error: Floats


@dataclass(frozen=True)
class Chosen:
    """Which submissions of a cloud are drawn, as indices.

    Attributes:
        front: all of the front, from the cheapest on.
        front_dots: those of the front that get a dot of their own.
        others: those beside the front that are drawn.
        others_in_all: how many there are beside the front.
    """

    front: Indices
    front_dots: Indices
    others: Indices
    others_in_all: int


def front(cost: Floats, error: Floats) -> Indices:
    """Indices of those that nobody beats: nobody is as good in both and better in one. From the cheapest on.

    >>> front(np.array([1.0, 2.0, 3.0, 2.0]), np.array([5.0, 4.0, 4.0, 6.0])).tolist()
    [0, 1]
    """
    if not len(cost):
        return np.zeros(0, np.int64)
    order = np.lexsort((error, cost))
    sorted_cost, sorted_error = cost[order], error[order]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_error)[:-1]))
    new = sorted_error < best_before
    # Who equals a member of the front in both belongs to it, too; the equals of one stand behind it in this order.
    leader = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    equal = (sorted_cost == sorted_cost[leader]) & (sorted_error == sorted_error[leader])
    chosen: Indices = order[equal].astype(np.int64)
    return chosen


def choose(cloud: Cloud, most_others: int = MOST_OTHERS, most_on_front: int = MOST_ON_FRONT) -> Chosen:
    """Which submissions are drawn: the front, and of the others so few that they can be told apart."""
    best = front(cloud.cost, cloud.error)
    is_beside = np.ones(len(cloud.ids), bool)
    is_beside[best] = False
    beside = np.flatnonzero(is_beside)
    cost = np.where(cloud.cost > 0, cloud.cost, np.nan)
    x = np.nan_to_num(_share(np.log(cost)))
    shown = _thin(x, _share(cloud.error), beside, most_others)
    return Chosen(best, _thin(x, _share(cloud.error), best, most_on_front), shown, len(beside))


def _share(values: Floats) -> Floats:
    """Values as shares of their range, 0 to 1."""
    known = values[np.isfinite(values)]
    if not len(known) or known.max() == known.min():
        return np.zeros_like(values)
    shares: Floats = (values - known.min()) / (known.max() - known.min())
    return shares


def _thin(x: Floats, y: Floats, of: Indices, most: int) -> Indices:
    """One per cell of a grid that becomes coarser until they are few enough, in the order that they had."""
    cells = 64
    while len(of) > most:
        place = (x[of] * cells).astype(np.int64) * (cells + 1) + (y[of] * cells).astype(np.int64)
        owner = np.full((cells + 1) ** 2, -1)
        owner[place[::-1]] = np.arange(len(of))[::-1]  # the first of each cell is written last
        first = np.sort(owner[owner >= 0])
        kept: Indices = of[first] if cells > 1 else of[first][:most]
        of, cells = kept, max(1, cells * 7 // 8)
    return of


def draw(cloud: Cloud, chosen: Chosen, names: Mapping[int, str], *, cost_name: str, cost_unit: str, id: str) -> Markup:
    """The picture.

    Args:
        cloud: the numbers.
        chosen: what is drawn of them.
        names: of those that are drawn, by index.
        cost_name: ``Comp`` or ``Mem``.
        cost_unit: of the cost.
        id: of the picture on the page.
    """
    frame = Frame()
    x = logarithmic(cloud.cost.tolist() or [1.0], frame.left, frame.x_end)
    low, high = (float(cloud.error.min()), float(cloud.error.max())) if len(cloud.error) else (0.0, 1.0)
    steep = low > 0 and high / low > 12
    y = (
        logarithmic([low, high], frame.y_end, frame.top)
        if steep
        else linear(low, high, frame.y_end, frame.top, pad=0.08)
    )
    description = (
        f"Each dot is a submission, further left with less {cost_name} and further down with less error. "
        f"The front has {len(chosen.front)} of {len(cloud.ids)}. Its numbers stand in the table below the picture."
    )
    return picture(
        frame.width,
        frame.height,
        f"CER against {cost_name}",
        description,
        axes(frame, x, y, f"{cost_name} ({cost_unit}, logarithmic)", "CER (logarithmic)" if steep else "CER"),
        _stairs(cloud, chosen, frame, x, y),
        element("g", *(_dot(cloud, i, names[int(i)], cost_name, x, y, 3.2) for i in chosen.others), class_="others"),
        element("g", *(_dot(cloud, i, names[int(i)], cost_name, x, y, 5.0) for i in chosen.front_dots), class_="front"),
        element("g", *_labels(cloud, chosen, names, frame, x, y), class_="names", aria_hidden="true"),
        id=id,
    )


def _dot(cloud: Cloud, index: int, name: str, cost_name: str, x: Scale, y: Scale, radius: float) -> Markup:
    cost, error = float(cloud.cost[index]), float(cloud.error[index])
    title = escape(f"{name}: CER {error:.2f}, {cost_name} {count(cost)}")
    # Written out, since there are hundreds of them on a page.
    return Markup(
        f'<circle cx="{x(cost):.1f}" cy="{y(error):.1f}" r="{radius}" data-submission="{int(cloud.ids[index])}">'
        f"<title>{title}</title></circle>"
    )


def _stairs(cloud: Cloud, chosen: Chosen, frame: Frame, x: Scale, y: Scale) -> Markup:
    """The front as a line, and what lies behind it as an area."""
    corners = [(x(float(cloud.cost[i])), y(float(cloud.error[i]))) for i in chosen.front]
    if not corners:
        return Markup("")
    steps = [(corners[0][0], float(frame.top)), corners[0]]
    for left, right in pairwise(corners):
        steps += [(right[0], left[1]), right]
    steps.append((float(frame.x_end), corners[-1][1]))
    behind = element("path", d=path([*steps, (float(frame.x_end), float(frame.top))], closed=True), class_="behind")
    return behind + element("path", d=path(steps), class_="stairs")


def _labels(cloud: Cloud, chosen: Chosen, names: Mapping[int, str], frame: Frame, x: Scale, y: Scale) -> list[Markup]:
    """Names beside dots of the front, where there is room: below to the left, or right above."""
    dots = [(x(float(cloud.cost[i])), y(float(cloud.error[i]))) for i in chosen.front_dots]
    taken: list[tuple[float, float, float, float]] = [(dx - 6, dy - 6, dx + 6, dy + 6) for dx, dy in dots]
    written = []
    for (dot_x, dot_y), index in zip(dots, chosen.front_dots, strict=True):
        name = names[int(index)]
        name = name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
        width = len(name) * _LETTER
        for anchor, left, base in (
            ("end", dot_x - 8 - width, dot_y + 15),
            ("end", dot_x - 9 - width, dot_y + 4),
            ("start", dot_x + 7, dot_y - 8),
            ("start", dot_x + 7, dot_y + 17),
        ):
            box = (left, base - 12, left + width, base + 3)
            inside = box[0] >= frame.left + 4 and box[2] <= frame.x_end and frame.top <= box[1] and box[3] < frame.y_end
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                at = left + width if anchor == "end" else left
                written.append(element("text", name, x=number(at), y=number(base), text_anchor=anchor))
                break
    return written


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
