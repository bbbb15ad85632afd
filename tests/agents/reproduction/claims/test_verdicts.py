"""The verdict on a comparison is the side of zero on which its interval lies."""

from __future__ import annotations

from statistics import mean, stdev

import pytest

from agents.analysis.statistics import Interval
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NOT_RUN, UNDECIDED, PairedComparison


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
def test_the_interval_decides(mean, half, predicted, verdict):
    assert PairedComparison("", "CER", Interval(mean, half, 3), predicted, tolerance=3.0).verdict == verdict


@pytest.mark.parametrize("predicted", ["below", "above", "close"])
def test_one_seed_is_undecided_and_no_seed_is_not_run(predicted):
    assert PairedComparison("", "CER", Interval(-9.0, None, 1), predicted, tolerance=3.0).verdict == UNDECIDED
    assert PairedComparison("", "CER", None, predicted).verdict == NOT_RUN


def test_the_effect_size_is_the_mean_difference_in_standard_deviations():
    differences = [1.0, 2.0, 6.0]
    effect = PairedComparison("", "CER", Interval.of(differences)).effect
    assert effect == pytest.approx(mean(differences) / stdev(differences))
    assert PairedComparison("", "CER", Interval.of([1.0])).effect is None
    assert PairedComparison("", "CER", Interval.of([1.0, 1.0])).effect is None


def test_strength_is_the_distance_in_half_intervals():
    assert PairedComparison("", "CER", Interval(-3.0, 1.5, 3)).strength == 2
    assert PairedComparison("", "CER", Interval(-3.0, 1.5, 3), "above").strength == -2
    assert PairedComparison("", "CER", Interval(1.0, 1.0, 3), "close", tolerance=3.0).strength == 2
    assert PairedComparison("", "CER", Interval(-3.0, 0.0, 3)).strength == float("inf")
