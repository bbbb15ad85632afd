"""The CER that a doubling of the training FLOPs saves."""

from __future__ import annotations

import pytest

from agents.analysis.savings import savings
from agents.analysis.seed_groups import find_seed_groups

from ..fake_runs import fake_run, measured_run

TICKS = 21  # in the sum of errors


def test_a_method_whose_cer_halves_with_each_doubling_saves_one_half() -> None:
    runs = [
        measured_run("sm", width, 5, seed, 0.8 / width * (1 + 0.1 * seed), training=300 * width)
        for width in (1, 2, 4)
        for seed in (0, 1, 2)
    ]
    (found,) = savings(find_seed_groups(runs)[0])
    assert found.part_saved is not None
    assert (found.part_saved.mean, found.part_saved.half) == pytest.approx((0.5, 0.0))
    # In seed 0, the step to width 2 saves 0.4 of an error at each tick, and the step to 4 saves 0.2: 0.3 on average.
    assert [(step.start, step.end) for step in found.steps] == [(1, 2), (2, 4)]
    assert [step.saved.mean for step in found.steps if step.saved] == pytest.approx([TICKS * 0.44, TICKS * 0.22])
    assert found.saved is not None
    assert found.saved.mean == pytest.approx(TICKS * 0.33)
    assert found.saved.n == 3
    # The slopes of the three seeds are 0.30, 0.33 and 0.36 per tick: t = 4.303 for 2 degrees of freedom.
    assert found.saved.half == pytest.approx(TICKS * 0.03 * 4.3027 / 3**0.5, rel=1e-4)


def test_the_best_wait_of_each_width_is_a_point_and_replay_is_a_method_of_its_own() -> None:
    runs = [
        measured_run("sm", width, wait, 0, error + 0.1 * replay, training=300 * width * (1 + replay), replay=replay)
        for width, by_wait in ((4, {1: 0.9, 5: 0.6}), (8, {1: 0.3, 5: 0.5}))
        for wait, error in by_wait.items()
        for replay in (False, True)
    ]
    found = savings(find_seed_groups(runs)[0])
    assert [(one.method, one.replay) for one in found] == [("SM", False), ("SM", True)]
    assert [(group.width, group.wait) for group in found[0].points] == [(4, 5), (8, 1)]
    assert found[0].saved is not None
    assert (found[0].saved.mean, found[0].saved.half) == (pytest.approx(TICKS * 0.3), None)


def test_members_and_replay_are_steps_from_the_single_model_of_the_same_width() -> None:
    runs = [
        measured_run(agent, 4, 5, seed, error + 0.01 * seed, training=training, replay=replay)
        for agent, error, training, replay in (
            ("sm", 0.6, 300, False),
            ("sm", 0.5, 600, True),
            ("ens", 0.2, 1_200, False),
            ("gens", 0.4, 300, False),
        )
        for seed in (0, 1)
    ]
    found = {(one.method, one.replay): one.from_single for one in savings(find_seed_groups(runs)[0])}
    assert not found["SM", False]
    assert not found["gEns", False]  # no more FLOPs
    (replayed,), (members,) = found["SM", True], found["Ens", False]
    assert (replayed.start, replayed.end, members.end) == (4, 4, 4)
    assert replayed.saved is not None
    assert members.saved is not None
    assert (replayed.saved.mean, members.saved.mean) == pytest.approx((TICKS * 0.1, TICKS * 0.4 / 2))


def test_equal_flops_missing_seeds_and_single_widths_have_no_slope() -> None:
    equal = [measured_run("sm", width, 5, 0, 0.5, training=300) for width in (4, 8)]
    apart = [measured_run("ens", width, 5, seed, 0.5, training=300 * width) for width, seed in ((4, 0), (8, 1))]
    single = [measured_run("umix", 4, 5, 0, 0.5, training=300)]
    free = [fake_run("gmoe", wait=30)]  # never trains
    found = savings(find_seed_groups([*equal, *apart, *single, *free])[0])
    assert [one.method for one in found] == ["SM", "Ens", "UMix"]
    assert all(one.saved is None and one.part_saved is None for one in found)
    assert [len(one.steps) for one in found] == [0, 1, 0]
    assert found[1].steps[0].saved is None
