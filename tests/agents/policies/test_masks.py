"""Actions that decide something without an effect are not allowed."""

from __future__ import annotations

import numpy as np
import pytest

from agents.policies import Decision
from agents.policies.masks import mask_state, mask_table

WAIT, TRAIN = Decision(False), Decision(True)
REPLAY, NEWEST = Decision(True, replay=True), Decision(True, replay=True, window=2)
GROW, RESTART, IDLE = Decision(True, grow=1), Decision(True, restart=True), Decision(False, grow=1)
ALL = [WAIT, TRAIN, REPLAY, NEWEST, GROW, RESTART, IDLE]


@pytest.mark.parametrize(
    ("tick", "pending", "stages", "grows", "expected"),
    [
        (1, 1, 0, True, [1, 1, 0, 0, 0, 0, 0]),
        (5, 5, 0, True, [1, 1, 0, 0, 0, 0, 0]),  # no mega-batch is older than the gathered ones
        (5, 4, 1, True, [1, 1, 1, 1, 1, 1, 0]),
        (5, 4, 1, False, [1, 1, 1, 1, 0, 1, 0]),
    ],
)
def test_an_action_is_allowed_if_all_that_it_decides_has_an_effect(tick, pending, stages, grows, expected):
    mask = mask_table(ALL, grows=grows)[mask_state(tick, pending, stages)]
    assert mask.tolist() == [bool(one) for one in expected]


def test_the_masks_of_many_runs_are_those_of_each():
    ticks, pending, stages = np.array([1, 5, 5]), np.array([1, 5, 4]), np.array([0, 0, 1])
    alone = [mask_state(*run) for run in zip(ticks, pending, stages, strict=True)]
    assert mask_state(ticks, pending, stages).tolist() == alone
