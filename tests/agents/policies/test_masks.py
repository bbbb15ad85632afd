"""Actions that decide something without an effect are not allowed."""

from __future__ import annotations

import numpy as np
import pytest

from agents.policies import Decision
from agents.policies.masks import allowed

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
    mask = allowed(ALL, tick=tick, pending=pending, stages=stages, grows=grows)
    assert mask.tolist() == [bool(one) for one in expected]


def test_the_masks_of_many_runs_are_those_of_each():
    ticks, pending, stages = np.array([1, 5, 5]), np.array([1, 5, 4]), np.array([0, 0, 1])
    masks = allowed(ALL, tick=ticks, pending=pending, stages=stages)
    alone = [allowed(ALL, tick=t, pending=p, stages=s) for t, p, s in zip(ticks, pending, stages, strict=True)]
    assert np.array_equal(masks, np.stack(alone))
