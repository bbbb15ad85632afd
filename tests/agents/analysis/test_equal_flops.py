"""The order of methods at equal FLOPs, by the paper's count and by Comp."""

from __future__ import annotations

import pytest

from agents.analysis.equal_flops import COUNTS, HIGHER, LOWER, UNDECIDED, cells
from agents.analysis.seed_groups import find_seed_groups

from ..fake_runs import measured_run

TICKS = 21  # in the sum of errors


def _cells(runs):
    return {cell.setting.name: cell for cell in cells(find_seed_groups(runs)[0])}


def test_the_other_method_is_interpolated_in_the_logarithm_of_the_flops() -> None:
    small, large = (
        measured_run("sm", width, 5, 0, error, training=flops)
        for width, error, flops in ((4, 0.6, 300), (16, 0.2, 4_800))
    )
    middle = measured_run("ens", 4, 5, 0, 0.5, training=1_200)  # half way, where SM has an error of 0.4
    found = _cells([small, large, middle])
    assert list(found) == ["Ens-4, w = 5"]  # Ens has no width near the FLOPs of SM
    (opponent,) = found["Ens-4, w = 5"].opponents
    assert opponent.method == "SM"
    assert [opponent.differences[count].mean for count in COUNTS] == pytest.approx([TICKS * 0.1] * 3)
    assert found["Ens-4, w = 5"].order("Comp") == ("SM", "Ens")


def test_a_count_that_charges_growth_and_validation_can_change_the_winner() -> None:
    runs = [
        run
        for seed in (0, 1, 2)
        for run in (
            measured_run("sm", 4, 5, seed, 0.6 + 0.01 * seed, training=300),
            measured_run("sm", 16, 5, seed, 0.2 + 0.01 * seed, training=4_800),
            # The paper's rule of 6 charges gMoE as much as the small SM, and Comp as much as the large one.
            measured_run("gmoe", 4, 5, seed, 0.5 + 0.01 * seed, training=300, growth=2_900, validation=100),
        )
    ]
    cell = _cells(runs)["gMoE-4, w = 5"]
    (opponent,) = cell.opponents
    assert opponent.differences["training only"].mean == pytest.approx(-0.1 * TICKS)
    assert [opponent.verdict(count) for count in COUNTS] == [LOWER, HIGHER, HIGHER]
    assert [cell.order(count)[0] for count in COUNTS] == ["gMoE", "SM", "SM"]


def test_one_seed_or_an_interval_around_zero_is_undecided() -> None:
    one = [measured_run(agent, 4, 5, 0, 0.5 + 0.1 * (agent == "sm"), training=300) for agent in ("sm", "ens")]
    assert _cells(one)["SM-4, w = 5"].opponents[0].verdict("Comp") == UNDECIDED
    noisy = [
        measured_run(agent, 4, 5, seed, error, training=300)
        for agent, errors in (("sm", (0.5, 0.7)), ("ens", (0.6, 0.5)))
        for seed, error in enumerate(errors)
    ]
    assert _cells(noisy)["Ens-4, w = 5"].opponents[0].verdict("Comp") == UNDECIDED


def test_settings_far_away_with_another_schedule_or_with_replay_are_not_compared() -> None:
    reference = measured_run("sm", 4, 5, 0, 0.5, training=1_000)
    assert _cells([reference, measured_run("ens", 4, 5, 0, 0.4, training=1_090)])  # within a tenth
    assert not _cells([reference, measured_run("ens", 4, 5, 0, 0.4, training=1_200)])
    assert not _cells([reference, measured_run("ens", 4, 10, 0, 0.4, training=1_000)])
    assert not _cells([reference, measured_run("ens", 4, 5, 0, 0.4, training=1_000, replay=True)])
