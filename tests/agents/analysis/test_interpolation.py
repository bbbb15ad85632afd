"""Values at equal amounts are interpolated between the same widths for each seed."""

from __future__ import annotations

import pytest

from agents.analysis.interpolation import at_amounts

CURVE = {100: 16.0, 200: 8.0, 400: 4.0, 1_600: 1.0}  # convex in the logarithm of the amount


def test_a_seed_without_a_width_between_its_neighbours_is_left_out() -> None:
    """A line from the smallest width to the largest is far above the curve."""
    widths = [{0: (at, value)} | ({1: (at, value)} if at in (100, 1_600) else {}) for at, value in CURVE.items()]
    between, exact, beyond = 283.0, 100.0, 95.0
    assert at_amounts({0: between, 1: between}, widths) == {0: pytest.approx(6.0, abs=0.01)}
    assert at_amounts({0: exact, 1: exact}, widths) == {0: 16.0, 1: 16.0}
    assert at_amounts({0: beyond, 1: beyond}, widths) == {0: 16.0, 1: 16.0}
    # Alone, a seed has no other widths to agree with.
    assert at_amounts({1: between}, widths).keys() == {1}


def test_amounts_far_outside_of_the_widths_have_no_value() -> None:
    widths = [{0: (100, 2.0)}, {0: (200, 1.0)}]
    assert at_amounts({0: 219.0}, widths) == {0: 1.0}
    assert at_amounts({0: 221.0}, widths) == {}
    assert at_amounts({0: 90.0}, widths) == {}
    assert at_amounts({1: 150.0}, widths) == {}


def test_of_equal_amounts_the_lowest_value_counts() -> None:
    assert at_amounts({0: 100.0}, [{0: (100, 3.0)}, {0: (100, 2.0)}]) == {0: 2.0}
