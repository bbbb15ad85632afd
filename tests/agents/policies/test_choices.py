"""The ten choices: their decisions, sizes and masks."""

from __future__ import annotations

import numpy as np
import pytest

from agents.policies.choices import (
    CHOICES,
    REPLAY,
    allowed_choices,
    choice_space,
    decision_of,
    megabatches_with,
    window,
)
from agents.policies.progress import Decision, megabatches_of

NAMES = [choice.name for choice in CHOICES]


def test_each_choice_is_a_different_decision():
    decisions = [decision_of(number, ticks=40) for number in range(len(CHOICES))]
    assert decisions[0] == Decision(train=False)
    assert len(set(decisions)) == len(CHOICES) == choice_space().n
    assert decision_of(NAMES.index("grow, replay last"), 40) == Decision(True, True, grow=1, window=4)


@pytest.mark.parametrize("ticks", [1, 7, 40])
def test_sizes_are_those_of_the_decisions(ticks):
    for tick in range(1, ticks + 1):
        for pending in {1, tick // 2 or 1, tick}:
            decisions = [decision_of(number, ticks) for number in range(1, len(CHOICES))]
            wanted = [megabatches_of(tick, pending, replay=one.replay, window=one.window) for one in decisions]
            assert megabatches_with(REPLAY[1:], tick, pending, ticks).tolist() == wanted


def test_replay_last_is_a_tenth_of_the_stream():
    assert [window(ticks) for ticks in (1, 9, 50, 500)] == [1, 1, 5, 50]


@pytest.mark.parametrize(
    ("tick", "pending", "stages", "grows", "names"),
    [
        (1, 1, 0, True, ["wait", "train"]),
        (5, 5, 0, True, ["wait", "train"]),
        (5, 2, 1, False, [name for name in NAMES if "grow" not in name]),
        (5, 2, 1, True, NAMES),
        (5, 5, 1, True, ["wait", "train", "restart", "grow"]),
    ],
)
def test_void_choices_are_masked(tick, pending, stages, grows, names):
    mask = allowed_choices(tick, pending, stages, grows=grows)
    assert [name for name, yes in zip(NAMES, mask, strict=True) if yes] == names


@pytest.mark.parametrize("last", [1, 2, 3, 10])
def test_replays_of_a_tenth_and_of_everything_are_both_allowed_where_they_are_the_same(last):
    both = [number for number, one in enumerate(CHOICES) if one.name in ("train, replay last", "train, replay all")]
    newest, everything = megabatches_with(["last", "all"], 12, 12 - last, ticks=20)
    assert (newest == everything) == (last <= 2)
    assert allowed_choices(12, 12 - last, 1, grows=False)[both].all()


def test_masks_of_many_episodes():
    many = allowed_choices(np.array([1, 5]), np.array([1, 2]), np.array([0, 1]), grows=False)
    assert many.shape == (2, 10)
    assert many.sum(1).tolist() == [2, 7]
