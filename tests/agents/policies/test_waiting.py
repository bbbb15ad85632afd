"""Schedules decide when to train from the progress of a run only."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import agents
import alma_env
from agents import BudgetPaced, Doubling, FixedWait, Geometric, Progress, RandomWait, ValidationTriggered, fixed_wait
from agents.catalogue.agent_config import AgentConfig
from agents.policies import Decision
from agents.policies.progress import megabatches_of


def trained_at(policy, ticks=32, *, losses=None, cost=10.0, fixed_cost=0.0) -> list[int]:
    """Return the ticks at which a policy trains.

    `losses` are the validation losses of its stages, `cost` the FLOPs per mega-batch, `fixed_cost` those per stage.
    """
    at: list[int] = []
    processed, last_pending, flops = 0, 0, 0.0
    for tick in range(1, ticks + 1):
        pending = tick - (at[-1] if at else 0)
        past = [losses[n] if losses else 1 / (n + 1) for n in range(len(at))]
        now = Progress(
            tick,
            ticks,
            pending,
            len(at),
            validation_loss=past[-1] if past else None,
            previous_validation_loss=past[-2] if len(past) > 1 else None,
            last_pending=last_pending,
            processed=processed,
            flops=int(flops),
        )
        decision = policy(now)
        if decision.train:
            size = megabatches_of(tick, pending, replay=decision.replay, window=decision.window)
            at.append(tick)
            processed, last_pending, flops = processed + size, pending, flops + cost * size + fixed_cost
    return at


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Doubling(), [1, 2, 4, 8, 16, 32]),
        (Doubling(first=3), [3, 6, 12, 24, 32]),
        (Doubling(factor=1.5), [1, 2, 3, 5, 8, 12, 18, 27, 32]),
        (Doubling(factor=100), [1, 32]),
        (Geometric(), [1, 2, 4, 7, 12, 20, 32]),
        (Geometric(factor=3, first=2, stop=0.8), [2, 6, 18, 25]),
        (FixedWait(10, stop=0.65), [10, 20]),
        (FixedWait(10, stop=0.01), [1]),
        (RandomWait(probability=1, stop=0.1), [1, 2, 3]),
        (FixedWait(10), [10, 20, 30, 32]),
        (RandomWait(probability=1), list(range(1, 33))),
        (RandomWait(probability=0), [32]),
    ],
)
def test_schedules_that_depend_on_the_tick_only(policy, expected):
    assert trained_at(policy) == expected


def test_a_random_wait_depends_on_its_seed_and_trains_with_its_probability():
    many = trained_at(RandomWait(probability=0.25, seed=1), ticks=4_000)
    assert many == trained_at(RandomWait(probability=0.25, seed=1), ticks=4_000)
    assert many != trained_at(RandomWait(probability=0.25, seed=2), ticks=4_000)
    assert len(many) == pytest.approx(1_000, abs=4 * np.sqrt(4_000 * 0.25 * 0.75))


def test_the_wait_doubles_after_each_stage_without_a_lower_validation_loss():
    falling = [1 / (n + 1) for n in range(40)]
    assert trained_at(ValidationTriggered(), 8, losses=falling) == list(range(1, 9))
    # Stages 3 and 5 do not lower the loss: the wait doubles after each of them.
    losses = [1.0, 0.9, 0.9, 0.8, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3]
    assert trained_at(ValidationTriggered(), 20, losses=losses) == [1, 2, 3, 5, 7, 11, 15, 19, 20]
    # With least=0.2 a decrease by a tenth is no improvement. Neither is a loss of NaN.
    assert trained_at(ValidationTriggered(least=0.2), 16, losses=[1.0, 0.9, 0.8, 0.7, 0.6]) == [1, 2, 4, 8, 16]
    assert trained_at(ValidationTriggered(wait=2), 12, losses=[1.0, float("nan"), 0.5, 0.4]) == [2, 4, 8, 12]


def test_a_budget_is_spent_evenly_and_never_exceeded():
    # With replay, a stage at tick t costs 10 t. A budget of 1,000 allows 31.25 t up to tick t.
    at = trained_at(BudgetPaced(budget=1_000, replay=True))
    assert at[0] == 1
    assert 10 * sum(at) <= 1_000
    assert all(10 * sum(at[: n + 1]) <= 1_000 * tick / 32 for n, tick in enumerate(at))
    # At the ticks without a stage, a stage would have exceeded the budget.
    waited = [tick for tick in range(2, 33) if tick not in at]
    spent = {tick: 10 * sum(earlier for earlier in at if earlier < tick) for tick in waited}
    assert all(spent[tick] + 10 * tick > 1_000 * tick / 32 for tick in waited)
    # A budget that is large enough for every tick has no effect.
    assert trained_at(BudgetPaced(budget=1e9)) == list(range(1, 33))
    with pytest.raises(ValueError, match=r"flops=None.*env\.meter"):
        BudgetPaced(budget=1)(Progress(1, 4, 1, 0))


def test_a_paced_run_stays_within_its_budget():
    env = alma_env.make("Digits-ALMA-v0", ticks=12)
    every_tick = agents.run(env, agents.make("sm", env, width=4, epochs=1, replay=True), 0)
    budget = every_tick.comp / 2
    paced = agents.make("sm", env, width=4, epochs=1, policy=BudgetPaced(budget=budget, replay=True))
    assert 0.3 * budget < agents.run(env, paced, 0).comp <= budget


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Doubling(factor=1.0), "factor=1.0.*above 1.*factor=2"),
        (lambda: Doubling(first=0), "first=0.*at least 1"),
        (lambda: ValidationTriggered(wait=0), "wait=0.*at least 1.*wait=1"),
        (lambda: ValidationTriggered(factor=0.5), "factor=0.5.*above 1"),
        (lambda: ValidationTriggered(least=1.0), "least=1.0.*below 1"),
        (lambda: BudgetPaced(budget=0.0), "budget=0.0.*above 0"),
        (lambda: BudgetPaced(budget=math.inf), "budget=inf.*finite"),
        (lambda: Geometric(factor=math.inf), "factor=inf.*finite"),
        (lambda: RandomWait(probability=1.5), "probability=1.5.*from 0 to 1"),
        (lambda: RandomWait(seed=-1), "seed=-1.*0 or more"),
        (lambda: RandomWait(probability="much"), "probability='much'.*a number"),
        (lambda: Geometric(stop=0), "stop=0.*above 0 and at most 1.*stop=1"),
        (lambda: Geometric(stop=1.5), "stop=1.5.*above 0"),
        (lambda: Doubling(restart=-0.1), "restart=-0.1.*from 0 to 1.*restart=0.1"),
        (lambda: Doubling(restart=True), "restart=True.*a number.*restart=0.1"),
        (lambda: Doubling(growth="often"), "growth='often'.*one of never"),
    ],
)
def test_a_schedule_with_a_value_out_of_range_raises(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("wait", "ticks", "expected"),
    [(1, 3, [1, 2, 3]), (2, 6, [2, 4, 6]), (4, 10, [4, 8, 10]), (10, 10, [10]), (1, 1, [1])],
)
def test_a_fixed_wait_trains_at_its_multiples_and_at_the_last_tick(wait, ticks, expected):
    assert trained_at(fixed_wait(wait), ticks) == expected


def test_a_fixed_wait_with_a_wrong_value_raises():
    with pytest.raises(ValueError, match="wait=0.*at least 1.*wait=1"):
        fixed_wait(0)
    with pytest.raises(ValueError, match=r"wait=2\.5.*whole number"):
        fixed_wait(2.5)
    for wrong in ("no", "last:0", "last:-1", "last:two", "last", None, 3):
        with pytest.raises(ValueError, match=f"replay={wrong!r}.*none.*all.*last:k.*use 'last:5'"):
            FixedWait(2, replay=wrong)


def test_replay_is_recorded_in_one_way_and_the_record_of_a_plain_wait_has_no_name():
    assert FixedWait(2, replay="all") == FixedWait(2, replay=True)
    assert FixedWait(2, replay=np.True_).as_plain_data() == {"replay": True, "growth": "never", "wait": 2}
    assert FixedWait(2, replay="none") == FixedWait(2)
    assert FixedWait(2).as_plain_data() == {"replay": False, "growth": "never", "wait": 2}
    windowed = FixedWait(2, replay="last:05")
    assert windowed.as_plain_data() == {"name": "fixed", "replay": "last:5", "growth": "never", "wait": 2}
    assert windowed(Progress(tick=2, ticks=9, pending=2, stages=0)) == Decision(True, replay=True, window=5)
    stops = FixedWait(2, stop=0.5).as_plain_data()
    assert stops == {"name": "fixed", "replay": False, "growth": "never", "stop": 0.5, "wait": 2}
    assert AgentConfig({"id": "sm", "policy": stops}).label == "sm, fixed(stop=0.5, wait=2)"
    assert AgentConfig({"id": "sm", "policy": windowed.as_plain_data()}).label == "sm, fixed(wait=2), replay last:5"
    assert AgentConfig({"policy": stops}).wait is None


@pytest.mark.parametrize(("share", "expected"), [(0, []), (0.25, [2, 4, 8]), (0.3, [2, 4, 8]), (1, [2, 4, 8, 16, 32])])
def test_trainings_within_a_share_of_the_stream_restart(share, expected):
    policy = Doubling(restart=share, replay="all")
    at = trained_at(policy)
    decisions = [
        policy(Progress(tick=tick, ticks=32, pending=tick - before, stages=stages))
        for stages, (before, tick) in enumerate(itertools.pairwise([0, *at]))
    ]
    assert [tick for tick, one in zip(at, decisions, strict=True) if one.restart] == expected
    record = policy.as_plain_data()
    assert record.get("restart", 0) == share
    assert ("restart" in AgentConfig({"id": "sm", "policy": record}).label) == (share > 0)


def test_a_share_of_the_stream_is_not_rounded_down():
    assert trained_at(FixedWait(1, stop=0.29), ticks=100)[-1] == 29  # 0.29 · 100 is 28.999…
    assert FixedWait(1, restart=0.7)(Progress(tick=63, ticks=90, pending=1, stages=62)).restart
    assert not FixedWait(1, restart=0.7)(Progress(tick=64, ticks=90, pending=1, stages=63)).restart


def test_a_multiple_of_a_waiting_time_is_not_rounded_up():
    assert Geometric(factor=1.1)(Progress(187, 500, 17, stages=9)).train  # 1.1 · 170 is 187.00000000000003
    worse = Progress(487, 500, 187, 9, validation_loss=1.0, previous_validation_loss=0.5, last_pending=170)
    assert ValidationTriggered(factor=1.1)(worse).train


def test_a_budget_is_kept_with_a_window_of_replay_and_not_spent_after_the_stop():
    at = trained_at(BudgetPaced(budget=1_000, replay="last:4", stop=0.5))
    assert len(at) > 1
    assert max(at) <= 16
