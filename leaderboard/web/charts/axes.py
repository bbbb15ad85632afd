"""Scales that map values to coordinates, and axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from leaderboard.web.charts.numbers import power, tick
from leaderboard.web.charts.svg import element

_NOTHING = 1e-12  # a logarithmic axis shows values up to this as 0
_CLOSE = 1e-9  # relative difference of two equal values

Marks = Sequence[tuple[float, str]]  # value and label


@dataclass(frozen=True)
class Frame:
    """The rectangle of a chart that contains the data, in coordinates of the SVG."""

    width: int = 560
    height: int = 340
    left: int = 62
    right: int = 14
    top: int = 14
    bottom: int = 50

    @property
    def x_end(self) -> int:
        """The right edge."""
        return self.width - self.right

    @property
    def y_end(self) -> int:
        """The lower edge."""
        return self.height - self.bottom


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map from values to coordinates.

    A logarithmic scale maps values without a logarithm to its low end. This end is a decade below the smallest value
    that has a logarithm, and its label is 0.
    """

    low: float  # value at the coordinate start
    high: float  # value at the coordinate end
    start: float
    end: float
    logarithmic: bool
    marks: Marks

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value. Values outside the scale are mapped to its ends."""
        low, high = self.low, self.high
        if self.logarithmic:
            value = math.log10(max(value, low))
            low, high = math.log10(low), math.log10(high)
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + share * (self.end - self.start)


def linear(low: float, high: float, start: float, end: float, *, pad: float = 0.0) -> Scale:
    """Return a linear scale that contains the given values, with about five round marks.

    >>> linear(0, 9.3, 0, 100).marks
    [(0.0, '0'), (2.0, '2'), (4.0, '4'), (6.0, '6'), (8.0, '8')]
    """
    size = max(abs(low), abs(high))
    if not high - low > _CLOSE * max(size, _NOTHING):  # the values are equal, apart from rounding
        half = 0.5 * (size if size > _NOTHING else 1.0)
        low, high = low - half, low + half
    span = high - low
    floor = 0.0 if low >= 0 else -math.inf
    low, high = max(floor, low - pad * span), high + pad * span
    step = _round_step((high - low) / 5)
    first = math.ceil(low / step - 1e-9)
    values = [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
    return Scale(low, high, start, end, False, [(value, tick(round(value, 12))) for value in values])


def _round_step(rough: float) -> float:
    magnitude: float = 10.0 ** math.floor(math.log10(rough))
    return next(m for f in (1, 2, 2.5, 5, 10) if (m := f * magnitude) >= rough * (1 - 1e-9))


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale that contains all values, with marks at 10^k, or at 1, 2 and 5 times 10^k.

    >>> logarithmic([2e3, 4e6], 0, 100).marks
    [(10000.0, '10⁴'), (100000.0, '10⁵'), (1000000.0, '10⁶')]
    """
    positive = [value for value in values if value > _NOTHING]
    zero = len(positive) < len(values)
    positive = positive or [1.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    pad = max(0.08 * (high - low), 0.06)
    low, high = low - (1.0 if zero else pad), high + pad
    decades = range(math.ceil(low + (0.5 if zero else 0) - 1e-9), math.floor(high) + 1)
    marks: list[tuple[float, str]]
    if len(decades) >= 3:
        every = math.ceil(len(decades) / 7)
        marks = [(10.0**k, power(k)) for k in decades if k % every == 0]
    else:
        steps = [(f * 10.0**k, f, k) for k in range(math.floor(low), math.ceil(high) + 1) for f in (1, 2, 5)]
        marks = [
            (value, power(k) if f == 1 else f"{f}·{power(k)}")
            for value, f, k in steps
            if low + (0.5 if zero else 0) <= math.log10(value) <= high
        ]
        if len(marks) < 2:
            marks = [(value, f"{value:.2e}".replace("e+", "e")) for value in (min(positive), max(positive))]
            marks = marks[: 1 + (marks[0][1] != marks[-1][1])]
    if zero:
        marks = [(10.0**low, "0"), *marks]
    return Scale(10.0**low, 10.0**high, start, end, True, marks)


_STEPS = ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), tuple(range(10, 100, 2)))


def logarithmic_plain(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a `logarithmic` scale of positive values, whose marks are at least three round numbers without powers.

    >>> [label for _, label in logarithmic_plain([12.5, 80], 0, 100).marks]
    ['15', '20', '30', '50', '70']
    """
    scale = logarithmic(values, start, end)
    decades = range(math.floor(math.log10(scale.low)) - 1, math.ceil(math.log10(scale.high)) + 1)
    marks: list[float] = []
    for steps in _STEPS:
        marks = [step * 10.0**decade for decade in decades for step in steps]
        marks = [mark for mark in marks if scale.low <= mark <= scale.high]
        if len(marks) >= 3:
            break
    return replace(scale, marks=[(mark, tick(round(mark, 12))) for mark in marks])


def axes(frame: Frame, x: Scale, y: Scale, x_title: str, y_title: str) -> Markup:
    """Draw both axes with grid lines, labels and titles."""
    lines, labels = [], []
    for value, label in x.marks:
        at = x(value)
        lines.append(element("path", d=f"M{at:.1f} {frame.top}V{frame.y_end}"))
        labels.append(element("text", label, x=round(at, 1), y=frame.y_end + 18, text_anchor="middle"))
    for value, label in y.marks:
        at = y(value)
        lines.append(element("path", d=f"M{frame.left} {at:.1f}H{frame.x_end}"))
        labels.append(element("text", label, x=frame.left - 8, y=round(at + 4, 1), text_anchor="end"))
    middle_x, middle_y = (frame.left + frame.x_end) / 2, (frame.top + frame.y_end) / 2
    titles = [
        element("text", x_title, x=middle_x, y=frame.height - 8, text_anchor="middle"),
        element("text", y_title, text_anchor="middle", transform=f"translate(14 {middle_y:.0f}) rotate(-90)"),
    ]
    edge = element("path", d=f"M{frame.left} {frame.top}V{frame.y_end}H{frame.x_end}", class_="axis")
    return (
        element("g", *lines, class_="grid", aria_hidden="true")
        + edge
        + element("g", *labels, class_="labels", aria_hidden="true")
        + element("g", *titles, class_="titles", aria_hidden="true")
    )
