"""The bar chart in the terminal."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from alma_env.rendering.text import chart, line
from alma_env.rendering.view import Trace, View


def view(ticks: int, answered: int, agents: int = 1) -> View:
    errors = 0.9 / np.arange(1, answered + 2)
    trained = np.arange(answered + 1) % 5 == 4
    parameters = np.where(np.arange(answered + 1) < 9, 10, 20)
    trace = Trace.of(errors, trained, parameters, 1e9)
    return View("stream", ticks, {f"agent_{place}": trace for place in range(agents)})


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("width", [30, 80, 100])
@pytest.mark.parametrize(("ticks", "answered"), [(4, 4), (20, 0), (20, 12), (500, 499)])
def test_a_chart_fits_its_width_and_has_marks_below_its_bars(agents, width, ticks, answered):
    lines = [text for text, _ in chart(view(ticks, answered, agents), width)]
    assert max(len(text) for text in lines if not text[:1].isalpha()) <= width
    plots = "\n".join(lines[:-1])
    assert plots.count("▲") == (agents if answered >= 9 else 0)
    assert ("·" in plots) == (answered >= 4)


def test_the_chart_compares_with_fixed_waits_up_to_the_tick():
    waiting = dataclasses.replace(view(20, 2), fixed_waits={5: [0.9] * 5 + [0.1] * 16, 1: [0.9] + [0.2] * 20})
    assert [text for text, _ in chart(waiting, 80)][-1] == "CER of fixed waits so far: 1: 1.30, 5: 2.70"


def test_bars_fall_with_the_error():
    lines = [text for text, _ in chart(view(20, 20), 72)]
    bars = [text[9:] for text in lines[3:11]]
    filled = [sum(row[column : column + 1].strip() != "" for row in bars) for column in range(60)]
    assert filled == sorted(filled, reverse=True)
    assert filled[0] > filled[-1] > 0


def test_a_line_has_the_width_of_the_last_tick():
    assert line(view(500, 7)).startswith("tick   7/500  error 0.1125, CER 2.45, Comp 1 G FLOPs, 10 parameters, waited")
