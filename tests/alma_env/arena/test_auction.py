"""The shared budget: bids, grants, and the charges beyond a grant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alma_env import arena
from alma_env.arena import auction

from .arenas import TICKS, bidding, make


def test_the_highest_bidders_get_grants_which_leave_the_pool_also_if_unused():
    env = make(["a", "b", "c"], shared_flops_budget=1000, seats=2)
    observations, infos = env.reset(seed=0, options={"bids": {"a": 100, "b": 300}})
    assert (env.grants, env.pool) == ({"a": 100, "b": 300, "c": 0}, 600)
    assert observations["b"]["grant"] == infos["b"]["grant"] == 300
    assert observations["c"]["pool"] == infos["c"]["pool"] == 600
    assert infos["c"]["rivals"]["b"]["grant"] == 300
    env.meters["b"].declare(300, reason="work")
    env.step(bidding(a=50, b=500.9, c=200))
    assert (env.grants, env.pool) == ({"a": 0, "b": 500, "c": 100}, 0)  # as far as the pool suffices
    env.step(bidding(a=1000, b=1000, c=1000))
    assert set(env.grants.values()) == {0}
    assert env.agents == ["a", "b", "c"]


def test_without_bids_there_are_no_grants_at_tick_1():
    env = make(shared_flops_budget=1000)
    env.reset(seed=0)
    assert (env.grants, env.pool) == ({"a": 0, "b": 0}, 1000)
    env.meters["a"].declare(1, reason="work")
    env.step(bidding(a=10, b=10))
    assert env.agents == ["b"]


@pytest.mark.parametrize(("charges", "left"), [((10, 10), ["a", "b"]), ((11, 0), ["b"]), ((5, 10), ["a", "b"])])
def test_an_agent_that_is_charged_more_than_its_grant_is_truncated(charges, left):
    env = make(shared_flops_budget=20, seats=2)
    env.reset(seed=0, options={"bids": {"a": 10, "b": 10}})
    for agent, flops in zip("ab", charges, strict=True):
        env.meters[agent].declare(flops, reason="work")
    _, _, _, truncations, _ = env.step(bidding(a=0, b=0))
    assert env.agents == left
    assert truncations == {agent: agent not in left for agent in "ab"}
    # Unused FLOPs of a grant do not carry over.
    env.meters["b"].declare(1, reason="work")
    env.step(bidding(**dict.fromkeys(env.agents, 0)))
    assert "b" not in env.agents


def test_the_bid_of_a_truncated_agent_is_not_granted():
    env = make(shared_flops_budget=100)
    env.reset(seed=0)
    env.meters["a"].declare(1, reason="work")
    env.step(bidding(a=90, b=10))
    assert env.grants == {"a": 0, "b": 10}


def test_equal_bids_are_ordered_randomly_by_the_seed():
    def winners(seed):
        env = make(["a", "b", "c"], shared_flops_budget=1000)
        env.reset(seed=seed, options={"bids": {"a": 1, "b": 1, "c": 1}})
        winners_by_tick = []
        while env.agents:
            winners_by_tick += [agent for agent, grant in env.grants.items() if grant]
            env.step(bidding(**dict.fromkeys(env.agents, 1)))
        return winners_by_tick

    orders = [winners(seed) for seed in range(6)]
    assert all(len(order) == TICKS for order in orders)
    assert {agent for order in orders for agent in order} == {"a", "b", "c"}
    assert len(set(map(tuple, orders))) > 1
    assert winners(0) == orders[0]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50), min_size=1),
    st.integers(1, 6),
    st.integers(0, 120),
    st.integers(0, 9),
)
def test_grants_never_exceed_the_pool_or_the_bids(bids, seats, pool, seed):
    rank = auction.tie_ranks(list("abcdef"), seed, tick=1)
    granted = auction.grants(bids, seats=seats, pool=pool, rank=rank)
    assert sum(granted.values()) <= pool
    assert sum(grant > 0 for grant in granted.values()) <= seats
    assert all(0 <= granted[agent] <= bid for agent, bid in bids.items())
    # No lower bid gets a grant before a higher one, and grants are reduced only by an empty pool.
    served = [bid for agent, bid in bids.items() if granted[agent]]
    assert all(bid <= min(served) for agent, bid in bids.items() if not granted[agent] and served)
    highest = sorted(bids.values(), reverse=True)[:seats]
    assert sum(granted.values()) == min(pool, sum(highest))
    turned = dict(reversed(bids.items()))
    assert auction.grants(turned, seats=seats, pool=pool, rank=rank) == granted


ARRAYS = (np.zeros((50, 1), np.float32), np.arange(50) % 2)


@settings(max_examples=40)
@given(st.data())
def test_agents_within_their_grants_never_spend_more_than_the_shared_budget(data):
    budget, seats = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 3))
    env = arena.parallel_env(
        "Arrays-ALMA-v0", 3, train=ARRAYS, test=ARRAYS, ticks=4, shared_flops_budget=budget, seats=seats
    )
    bid = st.integers(0, budget)
    env.reset(seed=0, options={"bids": {agent: data.draw(bid) for agent in env.possible_agents}})
    pool = budget
    while env.agents:
        assert env.pool == pool - sum(env.grants.values())
        assert env.pool >= 0
        pool = env.pool
        broken = []
        for agent in env.agents:
            charge = data.draw(st.integers(0, env.grants[agent] + 1))
            env.meters[agent].declare(charge, reason="drawn")
            if charge > env.grants[agent]:
                broken.append(agent)
        actions = bidding(**{agent: data.draw(bid) for agent in env.agents})
        *_, truncations, _ = env.step(actions)
        assert [agent for agent, dropped in truncations.items() if dropped] == broken
        assert not set(broken) & set(env.agents)
    assert sum(ledger.comp for ledger in env.ledgers.values() if not ledger.score().truncated) <= budget


@pytest.mark.parametrize(
    ("bid", "error", "message"),
    [
        (-1, ValueError, "agent 'b'.*bid=-1: must lie between 0"),
        (1001, ValueError, "agent 'b'.*bid=1001.*shared budget of 1000"),
        (float("nan"), ValueError, "bid=nan"),
        (float("inf"), ValueError, "bid=inf"),
        ("all", TypeError, "bid='all': must be a number of FLOPs"),
        (True, TypeError, "bid=True"),
        (np.zeros(2), TypeError, "bid=array"),
        (np.complex64(1), TypeError, "agent 'b'.*bid="),
        (10**400, ValueError, "agent 'b'.*shared budget of 1000"),
    ],
)
def test_invalid_bids_are_refused(bid, error, message):
    env = make(shared_flops_budget=1000)
    env.reset(seed=0)
    before = env.state_dict()
    with pytest.raises(error, match=message):
        env.step(bidding(a=1, b=bid))
    with pytest.raises(error, match=message):
        env.reset(options={"bids": {"b": bid}})
    assert env.state_dict() == before
    with pytest.raises(TypeError, match="agent 'a': action None with a shared budget: must be"):
        env.step({"a": None, "b": None})


def test_bids_can_be_arrays():
    env = make(shared_flops_budget=1000, seats=2)
    env.reset(seed=0)
    bids = {"a": np.array(3.0), "b": np.array([4], np.int32)}
    env.step(bidding(**bids))
    assert env.grants == {"a": 3, "b": 4}
    sample = env.action_space("a").sample()
    assert sample in env.action_space("a")
    env.step({"a": sample, "b": {"predictor": None, "bid": np.float32(2)}})
    assert env.grants["a"] == int(sample["bid"])
