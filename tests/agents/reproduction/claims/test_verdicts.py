"""A comparison's verdict is the side of zero on which its whole interval lies."""

from __future__ import annotations

from statistics import mean, stdev

import pytest

from agents.reproduction.verdicts import CONTRADICTED, HOLDS, NOT_RUN, UNDECIDED, Comparison
from agents.statistics import Interval


@pytest.mark.parametrize(
    ("mean", "half", "predicted", "verdict"),
    [
        (-2.0, 1.0, "below", HOLDS),
        (2.0, 1.0, "below", CONTRADICTED),
        (-0.5, 1.0, "below", UNDECIDED),
        (2.0, 1.0, "above", HOLDS),
        (-2.0, 1.0, "above", CONTRADICTED),
        (-1.0, 0.0, "below", HOLDS),
        (0.0, 0.0, "below", UNDECIDED),
        (1.0, 1.0, "close", HOLDS),
        (-1.0, 1.5, "close", HOLDS),
        (2.5, 1.0, "close", UNDECIDED),
        (-9.0, 1.0, "close", CONTRADICTED),
    ],
)
def test_the_whole_interval_decides(mean, half, predicted, verdict):
    assert Comparison("", "CER", Interval(mean, half, 3), predicted, tolerance=3.0).verdict == verdict


@pytest.mark.parametrize("predicted", ["below", "above", "close"])
def test_one_seed_decides_nothing_and_no_seed_was_not_run(predicted):
    assert Comparison("", "CER", Interval(-9.0, None, 1), predicted, tolerance=3.0).verdict == UNDECIDED
    assert Comparison("", "CER", None, predicted).verdict == NOT_RUN


def test_the_effect_size_is_the_mean_difference_in_standard_deviations():
    differences = [1.0, 2.0, 6.0]
    effect = Comparison("", "CER", Interval.of(differences)).effect
    assert effect == pytest.approx(mean(differences) / stdev(differences))
    assert Comparison("", "CER", Interval.of([1.0])).effect is None
    assert Comparison("", "CER", Interval.of([1.0, 1.0])).effect is None


def test_strength_counts_half_intervals_towards_the_prediction():
    assert Comparison("", "CER", Interval(-3.0, 1.5, 3)).strength == 2
    assert Comparison("", "CER", Interval(-3.0, 1.5, 3), "above").strength == -2
    assert Comparison("", "CER", Interval(1.0, 1.0, 3), "close", tolerance=3.0).strength == 2
    assert Comparison("", "CER", Interval(-3.0, 0.0, 3)).strength == float("inf")
