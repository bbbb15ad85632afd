"""Bidders keep their grants and the shared budget; a bid covers the cost of the next training."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import alma_env
from agents.arena import tournament
from agents.arena.bidder import Bidder
from agents.arena.contestants import read_contestants
from alma_env.arena.arena import Arena

from .entries import DIGITS, TICKS, enter


@pytest.fixture(scope="module")
def env() -> alma_env.AlmaEnv:
    return alma_env.make(DIGITS, ticks=TICKS)


FAMILY = (
    "sm:width=4",
    "sm:width=4,patience=1,epochs=4",
    "sm:width=8,wait=2,replay=true",
    "sm:width=4,keep_initial=true,wait=2",
    "ens:width=4,members=2",
    "umix:width=4",
    "gens:width=4",
    "gmoe:width=4,wait=2",
    "oracle:width=2",
)


@pytest.mark.parametrize(("budget", "seats"), [(10**12, len(FAMILY)), (3 * 10**7, 2)], ids=["plenty", "scarce"])
def test_bidders_keep_their_grants_and_the_shared_budget(env, budget, seats):
    arena, players = enter(env, *FAMILY, shared_flops_budget=budget, seats=seats)
    trained = dict.fromkeys(players, 0)

    def on_tick(arena):
        for name, ledger in arena.ledgers.items():
            trained[name] += ledger[arena.tick].comp > 0
        assert sum(ledger[arena.tick].comp > 0 for ledger in arena.ledgers.values()) <= seats

    tournament.play(arena, players, seed=0, on_tick=on_tick)
    assert not [name for name, ledger in arena.ledgers.items() if ledger.score().truncated]
    assert 0 < sum(ledger.comp for ledger in arena.ledgers.values()) <= budget
    stages = {name: agent.stages for name, agent in players.items()}
    assert trained == stages
    if budget == 10**12:  # no agent waited for a grant
        assert stages == {name: math.ceil(TICKS / agent.config["policy"]["wait"]) for name, agent in players.items()}
    else:
        assert sum(stages.values()) < 2 * TICKS
        assert arena.pool >= 0


def test_two_equal_agents_take_turns_on_one_seat_and_lose_no_data(env):
    arena, players = enter(env, "sm:width=4", "sm:width=4,batch_size=127", shared_flops_budget=10**12)
    examples = {name: [] for name in players}
    for name, agent in players.items():
        on_epoch = lambda epoch, name=name, agent=agent: examples[name].append(agent.training_on)  # noqa: E731
        agent.learner.trainer = dataclasses.replace(agent.learner.trainer, on_epoch=on_epoch)
    tournament.play(arena, players, seed=0)
    seen = {name: sum(sizes) // 2 for name, sizes in examples.items()}  # in 2 epochs
    assert sorted(agent.stages for agent in players.values()) == [TICKS // 2, TICKS // 2]
    assert {env.examples_per_tick * (TICKS - agent.pending) for agent in players.values()} == set(seen.values())
    assert max(seen.values()) == env.examples_per_tick * TICKS


def test_a_bid_covers_the_cost_of_a_training_and_is_0_if_the_policy_would_wait(env):
    arena, players = enter(env, "sm:width=4,wait=2", shared_flops_budget=10**12)
    ((name, agent),) = players.items()
    observations, _ = arena.reset(seed=0, options={"predictors": {name: agent.predictor}})
    bidder = Bidder(agent, arena.meters[name])

    def answer(grant):
        with arena.meters[name]:
            return bidder.observe(observations[name], grant)

    bids = [bidder.next_bid(observations[name], arena.ledgers[name], arena.pool)]
    while arena.tick < TICKS - 1:
        predictor = answer(arena.grants[name])
        assert (predictor is not None) == (arena.grants[name] > 0)
        bids.append(bidder.next_bid(observations[name], arena.ledgers[name], arena.pool))
        observations, *_ = arena.step({name: {"predictor": predictor, "bid": bids[-1]}})
    costs = [row.comp for row in arena.ledgers[name]][1:]
    assert [bid > 0 for bid in bids] == [False, True] * (TICKS // 2)
    assert [cost > 0 for cost in costs] == [False, True, False, True, False]
    assert 0.5 * bids[1] < costs[1] < bids[1]  # the first layer needs no input gradient; the next bid accounts for it
    assert costs[3] == costs[1]
    assert bids[3] == pytest.approx(1.05 * costs[1], abs=1)
    assert arena.grants[name] == bids[-1]
    # A grant below the bid is not used.
    assert answer(bids[-1] - 1) is None
    assert arena.meters[name].total == arena.ledgers[name].comp


def test_a_bid_is_0_if_the_pool_cannot_pay_it_and_after_the_last_tick(env):
    arena, players = enter(env, "sm:width=4", shared_flops_budget=10**12)
    ((name, agent),) = players.items()
    observations, _ = arena.reset(seed=0, options={"predictors": {name: agent.predictor}})
    bidder = Bidder(agent, arena.meters[name])
    full = bidder.next_bid(observations[name], arena.ledgers[name], arena.pool)
    assert bidder.next_bid(observations[name], arena.ledgers[name], full) == full
    assert bidder.next_bid(observations[name], arena.ledgers[name], full - 1) == 0
    agent.tick = TICKS
    assert bidder.next_bid(observations[name], arena.ledgers[name], arena.pool) == 0


def test_a_policy_that_returns_a_bool_bids(env):
    arena, players = enter(env, "sm:width=4", shared_flops_budget=10**12)
    ((name, agent),) = players.items()
    observations, _ = arena.reset(seed=0, options={"predictors": {name: agent.predictor}})
    for decision, bids in ((True, True), (False, False)):
        agent.policy = lambda now, decision=decision: decision
        bidder = Bidder(agent, arena.meters[name])
        assert (bidder.next_bid(observations[name], arena.ledgers[name], arena.pool) > 0) is bids


def test_a_bid_covers_a_whole_stage_after_a_stage_that_grew_and_stopped_early():
    specs = [f"gmoe:width={width},growth=at:4,10,patience=1,epochs=6,learning_rate=3" for width in (4, 16)]
    arena, players = enter(alma_env.make(DIGITS, ticks=12), *specs, shared_flops_budget=10**12, seats=2)
    tournament.play(arena, players, seed=1)
    assert [name for name, ledger in arena.ledgers.items() if ledger.score().truncated] == []


def test_a_bid_covers_a_stage_after_several_growth_steps():
    specs = ["gmoe:width=4,growth=at:5,6,7,wait=4,epochs=5", "gmoe:width=4,growth=at:2,9,10,11,12,wait=4,epochs=5"]
    arena, players = enter(alma_env.make(DIGITS, ticks=12), *specs, shared_flops_budget=10**12, seats=2)
    tournament.play(arena, players, seed=0)
    assert [name for name, ledger in arena.ledgers.items() if ledger.score().truncated] == []


class EverySecondCall:
    """A policy with state."""

    def __init__(self):
        self.calls = 0

    def __call__(self, now):
        self.calls += 1
        return self.calls % 2 == 0

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


def test_a_policy_with_state_decides_once_for_each_tick(env):
    for keywords in ({}, {"shared_flops_budget": 10**12}):
        arena, players = enter(env, "sm:width=4", **keywords)
        ((name, agent),) = players.items()
        agent.policy = EverySecondCall()
        tournament.play(arena, players, seed=0)
        assert [row.tick for row in arena.ledgers[name] if row.comp] == list(range(2, TICKS + 1, 2))


def test_firefly_with_growth_cannot_bid():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 3, 32, 32)).astype("uint8"), rng.integers(0, 2, 60)
    images = alma_env.make("Arrays-ALMA-v0", train=(x, y), test=(x, y), ticks=2, name="CIFAR10")
    for growth, refused in (("every", True), ("never", False)):
        arena, players = enter(images, f"ff:width=1,growth={growth}", shared_flops_budget=1e9)
        ((name, agent),) = players.items()
        if refused:
            with pytest.raises(ValueError, match="growth='every' of agent 'ff' with a shared budget.*growth=never"):
                Bidder(agent, arena.meters[name])
        else:
            assert Bidder(agent, arena.meters[name]).bid == 0


def test_a_policy_that_depends_on_the_spent_flops_can_bid():
    contestants = read_contestants(["sm:width=4,policy=budget:budget=1e7", "sm:width=4,policy=doubling"], {"epochs": 2})
    env = alma_env.make("Digits-ALMA-v0", ticks=6)
    arena = Arena(env, [contestant.name for contestant in contestants], shared_flops_budget=10**8)
    tournament.play(arena, {contestant.name: contestant.make(env, 0) for contestant in contestants}, 0)
    assert all(ledger.comp > 0 and len(ledger) == 7 for ledger in arena.ledgers.values())
