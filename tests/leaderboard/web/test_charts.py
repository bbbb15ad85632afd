"""Charts: the Pareto front, scales and curves for any numbers, and escaped names."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.analysis.statistics import Interval
from leaderboard.web.charts import curves, pareto
from leaderboard.web.charts.axes import linear, logarithmic
from leaderboard.web.charts.curves import Curve
from leaderboard.web.charts.numbers import count_interval, decimals
from leaderboard.web.charts.pareto import Cloud

numbers = st.floats(0, 1e30, allow_subnormal=False)


def cloud(cost, error) -> Cloud:
    return Cloud(np.arange(1, len(cost) + 1), np.array(cost, float), np.array(error, float))


def parsed(svg) -> ET.Element:
    """Parse the chart as XML. Invalid XML raises."""
    return ET.fromstring(svg)


def drawn(found: Cloud, names=None) -> ET.Element:
    names = names or {i: f"number {i}" for i in range(len(found.ids))}
    return parsed(pareto.draw(found, pareto.select(found), names, cost_name="Comp", cost_unit="FLOPs", id="p"))


def is_dominated(index, found: Cloud) -> bool:
    """Apply the definition of the front."""
    cost, error = found.cost[index], found.error[index]
    return any(
        c <= cost and e <= error and (c < cost or e < error) for c, e in zip(found.cost, found.error, strict=True)
    )


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_front_has_exactly_the_points_that_no_point_dominates(pairs):
    found = cloud(*zip(*pairs, strict=True))
    front = pareto.front(found.cost, found.error).tolist()
    assert sorted(front) == [i for i in range(len(pairs)) if not is_dominated(i, found)]
    assert front == sorted(front, key=lambda i: (found.cost[i], found.error[i]))


def test_of_10_000_points_the_front_and_some_others_over_the_whole_range_are_drawn():
    random = np.random.default_rng(0)
    cost = 10 ** random.uniform(8, 14, 10_000)
    found = cloud(cost, random.uniform(1, 100, 10_000))
    chosen = pareto.select(found)
    assert set(chosen.front) == set(pareto.front(found.cost, found.error))
    assert 50 < len(chosen.other_dots) <= pareto.MOST_OTHERS
    assert not set(chosen.other_dots) & set(chosen.front)
    assert chosen.others == 10_000 - len(chosen.front)
    shown = np.log10(found.cost[chosen.other_dots])
    assert all(((shown > low) & (shown < low + 1)).sum() >= 5 for low in range(8, 14))
    dots = list(drawn(found).iter("circle"))
    assert len(dots) == len(chosen.other_dots) + len(chosen.front_dots)


def test_the_leader_is_the_first_of_equal_submissions():
    found = cloud([2e9, 1e9, 1e9, 3e9], [2, 2, 2, 5])
    assert pareto.select(found).leader == 1
    labels = [text for text in drawn(found).iter("text") if text.get("class") == "leader"]
    assert [label.text for label in labels] == ["number 1"]
    assert pareto.select(cloud([], [])).leader is None


def test_a_front_of_5_000_points_has_all_corners_and_some_dots():
    found = cloud(np.arange(1, 5001), np.arange(5000, 0, -1))
    chosen = pareto.select(found)
    assert len(chosen.front) == 5000
    assert len(chosen.front_dots) <= pareto.MOST_ON_FRONT


def test_names_are_escaped():
    name = "<script>alert(1)</script>\"'&<b>"
    chart = drawn(cloud([1e9, 1e10], [3, 2]), {0: name, 1: "b"})
    assert not chart.findall(".//script")
    assert not chart.findall(".//b")
    titles = [title.text for title in chart.iter("title")]
    assert f"{name}: CER 3.00, Comp 1.00e9" in titles
    assert name[:23] + "…" in [text.text for text in chart.iter("text")]


@pytest.mark.parametrize("error", [[26.2, 28.6, 67.8], [5.0, 4.9, 4.8], [2, 900, 1e5]])
def test_cer_has_a_logarithmic_axis_with_round_numbers(error):
    chart = drawn(cloud([1e9, 1e11, 1e10], error))
    assert "CER (logarithmic)" in [text.text for text in chart.iter("text")]
    heights = {
        float(title.text.split("CER ")[1].split(",")[0].replace(",", "")): float(dot.get("cy"))
        for dot in chart.iter("circle")
        for title in dot.iter("title")
    }
    (high, top), (middle, between), (low, bottom) = sorted(heights.items(), reverse=True)
    assert (between - top) / (bottom - top) == pytest.approx(math.log(high / middle) / math.log(high / low), abs=0.02)
    labels = [text for text in chart.iter("text") if text.get("text-anchor") == "end" and text.get("x") == "54"]
    assert len(labels) >= 3
    assert all(re.fullmatch(r"[\d,.]+", label.text) or float(label.text) for label in labels)


def leaders(chart) -> list[str]:
    return [text.text for text in chart.iter("text") if text.get("class") == "leader"]


def test_the_leader_is_named_even_where_there_is_no_space():
    crowd = cloud([*np.linspace(1e9, 2e9, 200), 1.5e9], [*np.linspace(9, 8, 200), 7.99])
    names = {index: f"entry of some length {index}" for index in range(201)}
    assert leaders(drawn(crowd, names)) == ["entry of some length 200"]
    assert leaders(drawn(cloud([1e9], [3]))) == ["number 0"]
    assert leaders(drawn(cloud([1e9, 1e10], [2, 3]))) == ["number 0"]
    many = cloud(np.arange(1, 5001), np.arange(5000, 0, -1))  # the front has more submissions than dots
    assert leaders(drawn(many)) == ["number 4999"]


def test_costs_that_cannot_vary_have_no_interval_but_errors_have_one():
    assert count_interval(Interval(2.76e7, 0.0, 3)) == ("2.76e7", "")
    assert count_interval(Interval(2.76e7, 1e5, 3)) == ("2.76e7", "0.01e7")
    assert decimals(Interval(0.5, 0.0, 3), 2) == ("0.50", "0.00")


def test_a_chart_has_a_title_and_a_description():
    chart = drawn(cloud([1e9, 1e10], [3, 2]))
    assert chart.get("role") == "img"
    texts = {one.get("id"): one.text for one in chart}
    assert texts[chart.get("aria-labelledby")] == "CER against Comp"
    assert "The front has 2 of 2" in texts[chart.get("aria-describedby")]
    assert "style" not in "".join(attribute for one in chart.iter() for attribute in one.attrib)


@settings(max_examples=40)
@given(st.lists(st.tuples(numbers, numbers), max_size=12))
def test_the_dots_of_any_numbers_lie_inside_the_chart(pairs):
    found = cloud(*zip(*pairs, strict=True)) if pairs else cloud([], [])
    chart = drawn(found)
    for dot in chart.iter("circle"):
        assert 0 <= float(dot.get("cx")) <= 560
        assert 0 <= float(dot.get("cy")) <= 340


@settings(max_examples=40)
@given(st.lists(numbers, min_size=1, max_size=5))
def test_logarithmic_marks_are_sorted_and_zero_is_the_low_end(values):
    scale = logarithmic(values, 0, 100)
    places = [scale(value) for value, _ in scale.marks]
    assert places == sorted(places)
    assert all(0 <= scale(value) <= 100 for value in values)
    if 0.0 in values:
        assert scale.marks[0][1] == "0"
        assert scale(0.0) == 0


@settings(max_examples=40)
@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))
def test_linear_marks_are_few_and_inside_the_scale(low, high):
    scale = linear(low, high, 0, 100)
    assert 1 <= len(scale.marks) <= 12
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value, _ in scale.marks)
    assert math.isclose(scale(scale.low), 0, abs_tol=1e-9)
    assert math.isclose(scale(scale.high), 100)


def test_a_curve_is_the_mean_over_seeds_with_a_band_of_one_standard_deviation():
    curve = Curve.of("a", [[0.9, 0.5, 0.1], [0.9, 0.3, 0.3]])
    assert curve.mean.tolist() == pytest.approx([0.9, 0.4, 0.2])
    assert curve.deviation.tolist() == pytest.approx([0, math.sqrt(0.02), math.sqrt(0.02)])
    assert (curve.lowest.tolist(), curve.highest.tolist()) == ([0.9, 0.3, 0.1], [0.9, 0.5, 0.3])
    chart = parsed(curves.draw([curve], measure="test error", is_rate=True, id="c"))
    (line,) = [path for path in chart.iter("path") if path.get("class") == "line"]
    points = [tuple(map(float, point.split())) for point in line.get("d").removeprefix("M").split("L")]
    assert len(points) == 5  # steps: an answer stays until the next tick
    assert all(before[0] == after[0] or before[1] == after[1] for before, after in pairwise(points))
    assert len([path for path in chart.iter("path") if path.get("class") == "band"]) == 1
    assert "from 0.9 at tick 0 to 0.2 at tick 2" in chart.find("desc").text
    assert curves.lines(curve).count("<tr>") == 3
    assert '<th scope="row" class="number">1</th><td class="number">0.4</td>' in curves.lines(curve)


def test_one_seed_has_no_band_and_perplexities_have_a_logarithmic_axis():
    chart = curves.draw([Curve.of("a", [[8000, 90.5, 30.25]])], measure="perplexity", is_rate=False, id="c")
    assert 'class="band"' not in chart
    assert "perplexity (logarithmic)" in chart
    assert "10³" in chart


def test_seeds_with_different_numbers_of_ticks_are_refused():
    with pytest.raises(ValueError, match=r"lengths=\[2, 3\]: seeds must have equal numbers of ticks"):
        Curve.of("a", [[1, 1], [1, 1, 1]])
