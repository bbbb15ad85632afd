"""The verdict on a comparison is the side of zero on which its interval lies."""

from __future__ import annotations

from statistics import mean, stdev

import pytest

from agents.analysis.statistics import Interval
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NOT_RUN, UNDECIDED, PairedComparison


def _comparison(mean: float, half: float, predicted: str = "below", tolerance: float = 0.0) -> PairedComparison:
    """Return a comparison of three seeds whose 95 % interval is mean ± half."""
    unit = half / Interval.of([-1.0, 0.0, 1.0]).half
    one = PairedComparison("", "CER", {0: mean - unit, 1: mean, 2: mean + unit}, predicted, tolerance)
    assert (one.interval.mean, one.interval.half) == pytest.approx((mean, half))
    return one


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
    one = _comparison(mean, half, predicted, tolerance=3.0)
    assert one.verdict(one.p_value) == verdict


@pytest.mark.parametrize("predicted", ["below", "above", "close"])
def test_one_seed_is_undecided_and_no_seed_is_not_run(predicted):
    single = PairedComparison("", "CER", {4: -9.0}, predicted, tolerance=3.0)
    assert single.p_value is None
    assert single.verdict(single.p_value) == UNDECIDED
    assert PairedComparison("", "CER", {}, predicted).verdict(None) == NOT_RUN


@pytest.mark.parametrize(
    ("predicted", "mean", "tolerance"), [("above", 1.0, 0.0), ("close", 1.0, 2.0), ("close", 3.0, 2.0)]
)
def test_p_is_5_percent_where_the_interval_touches_the_limit(predicted, mean, tolerance):
    assert _comparison(mean, 1.0, predicted, tolerance).p_value == pytest.approx(0.05)


def test_a_larger_p_value_leaves_a_comparison_undecided():
    one = _comparison(-2.0, 1.0)
    assert one.verdict(one.p_value) == HOLDS
    assert one.verdict(0.06) == UNDECIDED


def test_the_effect_size_is_the_mean_difference_in_standard_deviations():
    differences = [1.0, 2.0, 6.0]
    effect = PairedComparison("", "CER", dict(enumerate(differences))).effect
    assert effect == pytest.approx(mean(differences) / stdev(differences))
    assert PairedComparison("", "CER", {0: 1.0}).effect is None
    assert PairedComparison("", "CER", {0: 1.0, 1: 1.0}).effect is None


def test_strength_is_the_distance_in_half_intervals():
    assert _comparison(-3.0, 1.5).strength == pytest.approx(2)
    assert _comparison(-3.0, 1.5, "above").strength == pytest.approx(-2)
    assert _comparison(1.0, 1.0, "close", tolerance=3.0).strength == pytest.approx(2)
    assert _comparison(-3.0, 0.0).strength == float("inf")


def test_support_is_a_fraction_of_the_compared_values_on_the_predicted_side():
    differences = {0: -1.0, 1: -3.0}
    assert PairedComparison("", "CER", differences, "below", scale=10.0).support == {0: 0.1, 1: 0.3}
    assert PairedComparison("", "CER", differences, "above", scale=10.0).support == {0: -0.1, 1: -0.3}
    close = PairedComparison("", "CER", differences, "close", tolerance=4.0, scale=10.0)
    assert close.support == pytest.approx({0: 0.3, 1: 0.1})
