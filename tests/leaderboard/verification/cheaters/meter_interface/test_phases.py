"""The meter's interface: names and sums of phases that would hide FLOPs."""

from __future__ import annotations

import pytest

from leaderboard.verification.reported import RunFailedError, flops

from ..gallery import attack


@attack("names two phases so that they are equal on the page", "their FLOPs are added up")
def test_phases_of_equal_printable_names_are_added_up():
    hidden = {"training\x00": 5, "training\x01": 7, "validation": 1}
    assert sum(flops(hidden, 13).values()) == 13
    long = {"x" * 60 + "a": 3, "x" * 60 + "b": 4}
    assert flops(long, 7) == {"x" * 50: 7}


@attack("sends phases that do not add up to its total", "the run fails")
def test_the_total_of_the_contestant_is_compared():
    with pytest.raises(RunFailedError, match="add up to 5, and the contestant's total is 500"):
        flops({"training": 5}, 500)
    for wrong in (-1, 1.5, True, "5"):
        with pytest.raises(RunFailedError, match="total"):
            flops({"training": 5}, wrong)


@attack("sends phases that add up to more than a row can hold", "the run fails")
def test_a_sum_of_phases_has_a_limit():
    with pytest.raises(RunFailedError, match="whole number"):
        flops({"a": 2**63 - 1, "b": 2**63 - 1}, None)
