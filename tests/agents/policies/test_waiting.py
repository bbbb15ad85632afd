"""Schedules train when they say, from progress alone, and have a name on the command line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import agents
import alma_env
from agents import BudgetPaced, Doubling, LearnedPolicy, Progress, RandomWait, ValidationTriggered
from agents.policies import SCHEDULES, Decision, FixedWait
from agents.policy_specs import policy_from


def trained_at(policy, ticks=32, *, losses=None, cost=10.0, fixed_cost=0.0) -> list[int]:
    """Ticks at which a policy trains, where losses are those of its trainings in turn and FLOPs go by mega-batch."""
    at: list[int] = []
    processed, last_pending, flops = 0, 0, 0.0
    for tick in range(1, ticks + 1):
        pending = tick - (at[-1] if at else 0)
        seen = [losses[n] if losses else 1 / (n + 1) for n in range(len(at))]
        now = Progress(
            tick,
            ticks,
            pending,
            len(at),
            validation_loss=seen[-1] if seen else None,
            previous_validation_loss=seen[-2] if len(seen) > 1 else None,
            last_pending=last_pending,
            processed=processed,
            flops=int(flops),
        )
        decision = policy(now)
        if decision.train:
            size = tick if decision.replay else pending
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
        (FixedWait(10), [10, 20, 30, 32]),
        (RandomWait(probability=1), list(range(1, 33))),
        (RandomWait(probability=0), [32]),
    ],
)
def test_schedules_of_the_tick_alone(policy, expected):
    assert trained_at(policy) == expected


def test_a_random_wait_is_that_of_its_seed_and_trains_as_often_as_it_should():
    many = trained_at(RandomWait(probability=0.25, seed=1), ticks=4_000)
    assert many == trained_at(RandomWait(probability=0.25, seed=1), ticks=4_000)
    assert many != trained_at(RandomWait(probability=0.25, seed=2), ticks=4_000)
    assert len(many) == pytest.approx(1_000, abs=4 * np.sqrt(4_000 * 0.25 * 0.75))


def test_validation_lengthens_the_wait_at_each_training_that_brought_nothing():
    falling = [1 / (n + 1) for n in range(40)]
    assert trained_at(ValidationTriggered(), 8, losses=falling) == list(range(1, 9))
    # Trainings 3 and 5 bring nothing: after each, the wait doubles, and stays.
    losses = [1.0, 0.9, 0.9, 0.8, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3]
    assert trained_at(ValidationTriggered(), 20, losses=losses) == [1, 2, 3, 5, 7, 11, 15, 19, 20]
    # A tenth is not enough if a fifth is asked for, nor is a loss that is not a number.
    assert trained_at(ValidationTriggered(least=0.2), 16, losses=[1.0, 0.9, 0.8, 0.7, 0.6]) == [1, 2, 4, 8, 16]
    assert trained_at(ValidationTriggered(wait=2), 12, losses=[1.0, float("nan"), 0.5, 0.4]) == [2, 4, 8, 12]


def test_a_budget_is_spent_evenly_and_never_exceeded():
    # With replay the tick t costs 10 t: what a budget of 1,000 allows by tick t is 31.25 t.
    at = trained_at(BudgetPaced(budget=1_000, replay=True))
    assert at[0] == 1
    assert 10 * sum(at) <= 1_000
    assert all(10 * sum(at[: n + 1]) <= 1_000 * tick / 32 for n, tick in enumerate(at))
    # One more training would not have fitted where it waited.
    waited = [tick for tick in range(2, 33) if tick not in at]
    spent = {tick: 10 * sum(one for one in at if one < tick) for tick in waited}
    assert all(spent[tick] + 10 * tick > 1_000 * tick / 32 for tick in waited)
    # A budget that the stream without replay does not use up makes no difference.
    assert trained_at(BudgetPaced(budget=1e9)) == list(range(1, 33))
    with pytest.raises(ValueError, match="flops=None in the policy's progress: the budget needs it"):
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
        (lambda: Doubling(factor=1.0), "factor=1.0: the data must grow by a factor above 1"),
        (lambda: Doubling(first=0), "first=0: the first tick is 1"),
        (lambda: ValidationTriggered(wait=0), "wait=0: the waiting time must be at least 1"),
        (lambda: ValidationTriggered(factor=0.5), "factor=0.5: the waiting time must grow"),
        (lambda: ValidationTriggered(least=1.0), "least=1.0: a share of the loss"),
        (lambda: BudgetPaced(budget=0.0), "budget=0.0: a number of FLOPs above 0"),
        (lambda: RandomWait(probability=1.5), "probability=1.5: must lie between 0 and 1"),
        (lambda: RandomWait(seed=-1), "seed=-1: must be 0 or more"),
        (lambda: RandomWait(probability="much"), "probability='much': must be a number"),
        (lambda: Doubling(growth="often"), "growth='often': no such schedule"),
    ],
)
def test_numbers_that_make_no_schedule_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- as words ------------------------------------------------------------------------------------


def test_every_schedule_has_a_name_and_its_fields_can_be_given():
    assert {type(policy_from(name)) for name in SCHEDULES} == set(SCHEDULES.values())
    assert policy_from("random:probability=0.5,seed=3,replay=true") == RandomWait(probability=0.5, seed=3, replay=True)
    assert policy_from("doubling", grows=True) == Doubling(growth="every")
    assert policy_from("doubling:growth=every:2", grows=True) == Doubling(growth="every:2")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sometimes", "there is no such policy; choose one of fixed, doubling, validation, budget, random, or a file"),
        ("doubling:by=2", "'by=2' is no field; write NAME:field=value with replay, growth, factor, first"),
        ("doubling:factor", "'factor' is no field"),
        ("nowhere.zip", "there is no such file; give what model.save"),
    ],
)
def test_words_that_are_no_policy_are_refused_with_the_choice(spec, message):
    with pytest.raises(ValueError, match=message):
        policy_from(spec)


def test_the_record_of_a_run_has_the_name_and_every_field():
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    config = agents.make("sm", env, width=4, policy=RandomWait(probability=0.5, seed=3)).config
    assert config["policy"] == {"name": "random", "replay": False, "growth": "never", "probability": 0.5, "seed": 3}


@dataclasses.dataclass(frozen=True)
class Own(Doubling):
    """Somebody's schedule on top of ours."""

    def due(self, now):
        return super().due(now) or now.pending > 5


def test_a_schedule_of_ones_own_is_described_as_any_policy():
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    config = agents.make("sm", env, width=4, policy=Own()).config
    assert config["policy"] == f"{__name__}.Own(replay=False, growth='never', factor=2.0, first=1)"
    assert Own()(Progress(8, 32, 6, 1)) == Decision(train=True)


def test_a_learned_policy_is_no_schedule_of_words():
    with pytest.raises(ValueError, match="there is no such file"):
        LearnedPolicy("missing.zip")
