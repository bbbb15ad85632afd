"""An episode as text: one line per tick, and a bar chart for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from alma_env.rendering.view import Trace, View

UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 8  # of the chart of one learner; several learners have a third each
_MARGIN = 9  # columns of the labels at the left


def engineering(value: float) -> str:
    """Return a number with three digits and a unit letter.

    >>> engineering(26506), engineering(3.4e12), engineering(7), engineering(999_800)
    ('26.5 k', '3.4 T', '7', '1 M')
    """
    size, letter = unit_of(value)
    return f"{value / size:.3g} {letter}".rstrip()


def unit_of(value: float) -> tuple[float, str]:
    """Return the unit in which a number is written with three digits: its size and its letter, 1 and "" for none."""
    # With three digits, 999.8 k is 1 M.
    return next(((size, letter) for size, letter in UNITS if abs(value) >= 0.9995 * size), (1.0, ""))


def line(view: View) -> str:
    """Return the last tick of an episode as one line."""
    several = len(view.traces) > 1
    parts = [
        f"{name}: {summary(view, trace)}, {event(trace)}" if several else f"{summary(view, trace)}, {event(trace)}"
        for name, trace in view.traces.items()
    ]
    return f"tick {view.tick:>{len(str(view.ticks))}}/{view.ticks}  " + " | ".join(parts)


def summary(view: View, trace: Trace, *, parameters: bool = True) -> str:
    """Return error, total, FLOPs and parameters of a learner as text."""
    return (
        f"{view.measure} {trace.errors[-1]:{'.4f' if view.is_rate else '.1f'}}, {view.total(trace)}, "
        f"Comp {engineering(trace.comp)} FLOPs"
        + (f", {engineering(trace.parameters)} parameters" if parameters else "")
    )


def event(trace: Trace) -> str:
    """Return what the learner did at its last tick."""
    if trace.stopped is not None:
        return f"exceeded a budget at tick {trace.stopped}"
    if len(trace.errors) == 1:
        return "no data yet"
    done = [word for word, marks in (("trained", trace.trained), ("grew", trace.grown)) if marks[-1]]
    return " and ".join(done) or "waited"


def chart(view: View, width: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of a bar chart, each with the name of the learner whose colour it has; empty for no colour.

    The bars are on the logarithmic axis of `View.limits`; the row below the bars marks trainings and growth.
    """
    columns = max(1, width - _MARGIN - 1)
    places = np.minimum(np.arange(columns) * (view.ticks + 1) // columns, view.ticks)  # the tick of each column
    low, high = view.limits()
    rows = _ROWS if len(view.traces) == 1 else 3
    yield view.title, ""
    yield f"tick {view.tick} of {view.ticks}", ""
    for name, trace in view.traces.items():
        yield f"{name}: {summary(view, trace)}" if len(view.traces) > 1 else summary(view, trace), name
        bars = _bars(trace.errors[places[places < len(trace.errors)]], low, high, rows)
        for number, row in enumerate(bars):
            label = f"{high:.3g}" if number == 0 else f"{low:.3g}" if number == rows - 1 else ""
            yield f"{label:>{_MARGIN - 1}} {row}", name
        yield " " * _MARGIN + _marks(trace, places), name
    end = str(view.ticks)
    yield " " * _MARGIN + "0" + end.rjust(columns - 1), ""
    yield " " * _MARGIN + "· trained  ▲ grew", ""
    if view.fixed_waits and view.is_rate:
        sums = {wait: float(np.sum(errors[: view.tick + 1])) for wait, errors in sorted(view.fixed_waits.items())}
        yield "CER of fixed waits so far: " + ", ".join(f"{wait}: {total:.2f}" for wait, total in sums.items()), ""


def _bars(errors: NDArray[np.float64], low: float, high: float, rows: int) -> list[str]:
    """Return the rows of the bars, the highest row first."""
    shares = np.log(np.clip(errors, low, high) / low) / math.log(high / low)
    eighths = np.maximum(np.round(shares * rows * 8), 1).astype(int)
    return ["".join(_BLOCKS[min(8, max(0, height - 8 * row))] for height in eighths) for row in range(rows - 1, -1, -1)]


def _marks(trace: Trace, places: NDArray[np.int64]) -> str:
    """Return the marks below the bars.

    A column stands for the ticks from its own to that of the next column. A tick with several columns has its mark at
    the first column.
    """
    out = []
    for place, (start, end) in enumerate(zip(places, [*places[1:], places[-1] + 1], strict=True)):
        ticks = slice(start, max(end, start + 1))
        repeated = place > 0 and places[place - 1] == start
        mark = "▲" if trace.grown[ticks].any() else "·" if trace.trained[ticks].any() else " "
        out.append(" " if repeated else mark)
    return "".join(out).rstrip()
