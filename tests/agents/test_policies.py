"""Policies decide from progress alone."""

from __future__ import annotations

import pytest

from agents import Progress, fixed_wait


def stages(wait: int, ticks: int) -> list[int]:
    policy, pending, trained = fixed_wait(wait), 0, []
    for tick in range(1, ticks + 1):
        pending += 1
        if policy(Progress(tick, ticks, pending, len(trained))).train:
            trained.append(tick)
            pending = 0
    return trained


@pytest.mark.parametrize(
    ("wait", "ticks", "expected"),
    [(1, 3, [1, 2, 3]), (2, 6, [2, 4, 6]), (4, 10, [4, 8, 10]), (10, 10, [10]), (1, 1, [1])],
)
def test_a_fixed_wait_trains_at_its_multiples_and_on_the_rest_at_the_end(wait, ticks, expected):
    assert stages(wait, ticks) == expected


def test_a_wait_below_one_is_refused():
    with pytest.raises(ValueError, match="wait=0: the waiting time must be at least 1 mega-batch"):
        fixed_wait(0)
