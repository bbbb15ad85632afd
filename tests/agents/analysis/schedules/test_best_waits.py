"""The best waiting time, and the waiting times that the seeds cannot exclude."""

from __future__ import annotations

import numpy as np
import pytest

from agents.analysis.schedules.best_waits import best_waits, confidence_set
from agents.analysis.seed_groups import find_seed_groups

from ...fake_runs import fake_run, measured_run


def test_a_wait_is_excluded_if_another_one_is_lower_in_a_one_sided_test_at_a_corrected_level() -> None:
    near = {0: 1.0, 1: 1.3, 2: 1.2}
    # Differences 0.6, 0.7, 0.8: t = 12.1 with 2 degrees of freedom, one-sided p = 0.0034.
    far = {seed: value + 0.6 + 0.1 * seed for seed, value in near.items()}
    assert confidence_set({1: far, 10: near}) == (10,)
    # With 16 waiting times the level is 0.05 / 15 = 0.0033, below p.
    many = dict.fromkeys(range(10, 25), near)
    assert confidence_set({1: far, **many}) == (1, *range(10, 25))


def test_a_wait_with_one_common_seed_is_never_excluded() -> None:
    assert confidence_set({1: {0: 9.0}, 10: {0: 1.0, 1: 1.1, 2: 1.2}}) == (1, 10)
    assert confidence_set({5: {0: 3.0}}) == (5,)


def test_the_confidence_set_holds_the_best_wait_in_95_percent_of_the_draws() -> None:
    """The worst case: all waiting times are equal, and one of them is the best by definition."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        values = random.normal(size=(4, 5))
        held += 0 in confidence_set({wait: dict(enumerate(values[wait].tolist())) for wait in range(4)})
    assert held >= 0.95 * 400 - 9  # two standard deviations of a binomial count


@pytest.mark.parametrize("replay", [False, True])
def test_the_best_wait_of_a_method_and_width_has_the_lowest_mean(replay: bool) -> None:
    runs = [
        measured_run("sm", 4, wait, seed, error, replay=replay)
        for wait, errors in {1: (0.5, 0.52, 0.51), 5: (0.3, 0.33, 0.31), 10: (0.31, 0.3, 0.33)}.items()
        for seed, error in enumerate(errors)
    ]
    (found,) = best_waits(find_seed_groups(runs)[0])
    assert (found.method, found.width, found.replay) == ("SM", 4, replay)
    assert (found.wait, found.waits, found.not_worse, found.untested) == (5, (1, 5, 10), (5, 10), ())
    assert found.shortest is not None
    # 21 errors in a sum; the mean of 0.2, 0.19 and 0.2
    assert found.shortest.mean == pytest.approx(21 * 0.59 / 3)


def test_a_window_of_replay_makes_another_method() -> None:
    windows = [fake_run("sm", 4, wait, 0, replay="last:2") for wait in (1, 2)]  # type: ignore[arg-type]
    found = best_waits(find_seed_groups([*windows, *(fake_run("sm", 4, wait, 0, replay=True) for wait in (1, 4))])[0])
    assert {one.method: one.waits for one in found} == {"SM": (1, 4), "SM, window 2": (1, 2)}


def test_waits_are_compared_over_the_seeds_that_all_of_them_have() -> None:
    runs = [measured_run("sm", 4, wait, seed, error) for wait, seed, error in ((1, 0, 0.5), (1, 1, 0.1), (5, 0, 0.4))]
    (found,) = best_waits(find_seed_groups(runs)[0])
    assert found.wait == 5  # seed 1 has no run at w = 5, so it does not help w = 1
    assert (found.not_worse, found.untested) == ((1, 5), (1,))


def test_policies_and_single_waits_are_left_out() -> None:
    policy = fake_run(policy={"name": "doubling", "first": 1, "replay": False})
    groups, _ = find_seed_groups([policy, fake_run("ens", wait=5)])
    assert best_waits(groups) == []
    assert [one.method for one in best_waits(groups, several=False)] == ["Ens"]
