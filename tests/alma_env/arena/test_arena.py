"""Several agents on one stream: independence, the rules of PettingZoo, and the shared budget."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from torch import nn

import alma_env
from alma_env import PredictorError, UnmeteredTrainingError, arena
from alma_env.arena import auction
from alma_env.arena.arena import Arena
from alma_env.errors import MissingPackageError

TICKS = 5
DIGITS = "Digits-ALMA-v0"


class Linear(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(10, 64, generator=generator) / 8)

    def forward(self, x):
        return nn.functional.linear(x.flatten(1).float() / 16, self.weight)


class Returning(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x):
        return torch.full((len(x), 10), self.value)


def train(model: nn.Module, observation, steps: int = 3) -> None:
    x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def rows(ledger):
    """The rows of a ledger without the seconds."""
    return [dataclasses.replace(row, seconds=0.0) for row in ledger]


def make(agents=("a", "b"), **keywords) -> Arena:
    return arena.parallel_env(DIGITS, agents, ticks=TICKS, **keywords)


def play(env: Arena, models: dict, steps: dict, seed: int = 0) -> None:
    """At each tick, every agent trains its model for the given number of steps; with 0 it waits."""
    observations, _ = env.reset(seed=seed, options={"predictors": models})
    while env.agents:
        for agent in env.agents:
            with env.meters[agent]:
                train(models[agent], observations[agent], steps[agent])
        observations, *_ = env.step({agent: models[agent] for agent in env.agents})


# --- independence of the agents ------------------------------------------------------------


@pytest.mark.parametrize("seeds", [[3], [3, None]], ids=["seeded", "drawn"])
def test_a_single_agent_has_the_ledger_of_almaenv(seeds):
    env, single = alma_env.make(DIGITS, ticks=TICKS), make(["only"])
    for seed in seeds:
        ours, theirs = Linear(), Linear()
        observation, _ = env.reset(seed=seed, options={"predictor": ours})
        observations, _ = single.reset(seed=seed, options={"predictors": {"only": theirs}})
        for tick in range(1, TICKS + 1):
            with env.meter:
                train(ours, observation, steps=tick)
            with single.meters["only"]:
                train(theirs, observations["only"], steps=tick)
            observation, *outcome = env.step(None if tick == 3 else ours)
            observations, *outcomes = single.step({"only": None if tick == 3 else theirs})
            assert [by_agent["only"] for by_agent in outcomes] == [*outcome[:3], {**outcome[3], "rivals": {}}]
            np.testing.assert_array_equal(observations["only"]["train"]["x"], observation["train"]["x"])
        assert rows(single.ledgers["only"]) == rows(env.ledger)
        assert env.ledger.comp > 0


def test_agents_do_not_influence_each_other():
    together = make()
    play(together, {"a": Linear(1), "b": Linear(2)}, {"a": 2, "b": 5})
    for agent, seed, steps in (("a", 1, 2), ("b", 2, 5)):
        single = make([agent])
        play(single, {agent: Linear(seed)}, {agent: steps})
        assert rows(together.ledgers[agent]) == rows(single.ledgers[agent])
    assert together.ledgers["a"].comp * 5 == together.ledgers["b"].comp * 2


def test_all_agents_get_separate_copies_of_the_mega_batches():
    env = make()
    observations, _ = env.reset(seed=7)
    stream = alma_env.Stream(alma_env.load("Digits"), TICKS, seed=7)
    for tick in range(1, TICKS + 1):
        observations["a"]["train"]["x"][:] = 0
        np.testing.assert_array_equal(observations["b"]["train"]["x"], stream.megabatch(tick)["train"]["x"])
        np.testing.assert_array_equal(env.megabatch(tick)["train"]["x"], stream.megabatch(tick)["train"]["x"])
        for agent in env.agents:
            assert observations[agent] in env.observation_space(agent)
        observations, *_ = env.step(dict.fromkeys(env.agents))


def test_the_data_are_loaded_once_for_all_agents():
    env = make(4)
    assert len({id(own.data) for own in env._envs.values()}) == 1


def test_an_agent_cannot_deploy_a_predictor_that_another_agent_trained():
    env, model = make(), Linear()
    observations, _ = env.reset(seed=0, options={"predictors": {"b": copy.deepcopy(model)}})
    with env.meters["a"]:
        train(model, observations["a"])
    stolen = copy.deepcopy(model)
    for deployed in (model, stolen):
        with pytest.raises(UnmeteredTrainingError, match=r"agent 'b', whose meter is arena.meters\['b'\]: .*changed"):
            env.step({"a": model, "b": deployed})
    with env.meters["b"]:  # copying the weights inside b's meter does not make them metered
        stolen = Linear(1)
        stolen.load_state_dict(model.state_dict())
        stolen(torch.from_numpy(observations["b"]["train"]["x"]))
    with pytest.raises(UnmeteredTrainingError, match="agent 'b'"):
        env.step({"a": model, "b": stolen})
    env.step({"a": model, "b": None})
    assert (env.ledgers["a"][1].comp > 0, env.ledgers["b"][1].error) == (True, env.ledgers["b"][0].error)


def test_scoring_is_not_charged_also_inside_a_meters_block():
    env, models = make(), {"a": Linear(1), "b": Linear(2)}
    with env.meters["a"]:
        env.reset(seed=0, options={"predictors": models})
        env.step({"a": env.action_space("a").sample(), "b": env.action_space("b").sample()})
        torch.ones(2, 2) @ torch.ones(2, 2)
    env.step({"a": None, "b": None})
    assert [row.comp for row in env.ledgers["a"]] == [0, 0, 16]
    assert env.ledgers["b"].comp == 0


# --- a refused step or reset changes nothing --------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (3, TypeError, "agent 'b'.*must be a torch.nn.Module, or None"),
        (Returning(float("nan")), PredictorError, "agent 'b'.*NaN"),
        (Linear(9), UnmeteredTrainingError, "agent 'b'.*while the meter was not running"),
    ],
)
def test_a_refused_action_does_not_change_the_arena(bad, error, message):
    env = make(["a", "b", "c"])
    env.reset(seed=0)
    env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    before, ledgers = env.state_dict(), {agent: rows(ledger) for agent, ledger in env.ledgers.items()}
    fine = {agent: env.action_space(agent).sample() for agent in ("a", "c")}
    with pytest.raises(error, match=message):
        env.step(fine | {"b": bad})
    assert env.state_dict() == before
    assert {agent: rows(ledger) for agent, ledger in env.ledgers.items()} == ledgers
    env.step(fine | {"b": None})
    assert env.tick == 2


def test_step_needs_the_actions_of_exactly_the_remaining_agents():
    env = make(parameter_budget={"b": 10})
    with pytest.raises(RuntimeError, match=r"the episode has not started; call reset\(\) first"):
        env.step({"a": None, "b": None})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="no action of agent 'b'"):
        env.step({"a": None})
    with pytest.raises(ValueError, match="agent 'd', which is unknown"):
        env.step({"a": None, "b": None, "d": None})
    env.step({"a": None, "b": env.action_space("b").sample()})
    with pytest.raises(ValueError, match="agent 'b', which has left the arena"):
        env.step({"a": None, "b": None})
    while env.agents:
        env.step({"a": None})
    with pytest.raises(RuntimeError, match=r"the episode is over; call reset\(\) first"):
        env.step({})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"options": {"predictors": {"a": Linear(), "b": Returning(float("nan"))}}}, PredictorError, "agent 'b'.*NaN"),
        ({"options": {"predictors": {"a": Linear(), "b": 3}}}, TypeError, "agent 'b'.*torch.nn.Module"),
        ({"options": {"predictors": {"c": Linear()}}}, ValueError, "predictors of agent 'c': unknown agent"),
        ({"options": {"predictors": Linear()}}, TypeError, "must be a dictionary by agent"),
        ({"options": {"bids": {"a": 1}}}, ValueError, "only with a shared budget"),
        ({"seed": -1, "options": {"predictors": {"a": Linear()}}}, ValueError, "seed=-1"),
    ],
)
def test_a_refused_reset_does_not_change_the_episode(arguments, error, message):
    env = make()
    env.reset(seed=0, options={"predictors": {"a": Linear(5)}})
    env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    before = env.state_dict()
    with pytest.raises(error, match=message):
        env.reset(**arguments)
    assert env.state_dict() == before


def test_unknown_options_are_ignored_with_a_warning():
    with pytest.warns(UserWarning, match=r"\['predictor'\] are ignored.*'predictors' and 'bids'"):
        make().reset(seed=0, options={"predictor": Linear()})


# --- truncation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["flops_budget", "parameter_budget"])
def test_an_agent_that_breaks_a_budget_is_truncated_and_the_others_continue(budget):
    env = make(["b", "a", "c"], **{budget: {"b": 100}})
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents))
    if budget == "flops_budget":
        env.meters["b"].declare(101, reason="work")
    offered = env.action_space("b").sample()  # 640 parameters
    outcome = env.step({"a": env.action_space("a").sample(), "b": offered, "c": None})
    for by_agent in outcome:
        assert list(by_agent) == ["b", "a", "c"]
    observations, rewards, terminations, truncations, infos = outcome
    assert env.agents == ["a", "c"]
    assert terminations == {"a": False, "b": False, "c": False}
    assert truncations == {"a": False, "b": True, "c": False}
    assert rewards["b"] == pytest.approx(-0.9 * (TICKS - 1))
    assert [row.refused for row in env.ledgers["b"]] == [False, False] + [True] * (TICKS - 1)
    comp = 101 if budget == "flops_budget" else 0
    assert infos["a"]["rivals"]["b"] == {"error": 0.9, "parameters": 0, "comp": comp, "refused": True}
    # A truncated agent sees no mega-batch that the other agents have not seen.
    stream = alma_env.Stream(alma_env.load("Digits"), TICKS, seed=0)
    np.testing.assert_array_equal(observations["b"]["train"]["x"], stream.megabatch(3)["train"]["x"])
    with pytest.raises(ValueError, match="tick=4: mega-batches 1 to 3 have arrived"):
        env.megabatch(4)
    for _ in range(TICKS - 2):
        outcome = env.step(dict.fromkeys(env.agents))
        assert all(list(by_agent) == ["a", "c"] for by_agent in outcome)
    assert outcome[2] == {"a": True, "c": True}
    assert env.agents == []
    assert {len(ledger) for ledger in env.ledgers.values()} == {TICKS + 1}


def test_budgets_for_all_agents_and_by_name():
    env = make(flops_budget=100)
    assert {own["flops_budget"] for own in env.protocol()["agents"].values()} == {100}
    env = make(flops_budget={"a": 100})
    assert [own["flops_budget"] for own in env.protocol()["agents"].values()] == [100, None]
    template = alma_env.make(DIGITS, ticks=TICKS, parameter_budget=7)
    assert Arena(template, ["a"]).protocol()["agents"]["a"]["parameter_budget"] == 7


# --- the checks of PettingZoo ----------------------------------------------------------

SETTINGS = [{}, {"parameter_budget": {"agent_1": 10}}, {"shared_flops_budget": 1e9, "seats": 2}]


@pytest.mark.parametrize("keywords", SETTINGS, ids=["plain", "one is truncated", "shared budget"])
@pytest.mark.filterwarnings("ignore:options", "ignore:A?[a-zA-Z ]*space for each agent", "ignore:Observation is not")
class TestPettingZoo:
    def test_parallel_api(self, keywords):
        parallel_api_test(make(3, **keywords))

    def test_parallel_seed(self, keywords):
        parallel_seed_test(lambda: make(3, **keywords))

    def test_aec_api_through_the_converter(self, keywords):
        api_test(arena.env(DIGITS, 3, ticks=TICKS, **keywords))

    def test_aec_seed(self, keywords):
        seed_test(lambda: arena.env(DIGITS, 3, ticks=TICKS, **keywords))


@pytest.mark.parametrize("keywords", SETTINGS, ids=["plain", "one is truncated", "shared budget"])
def test_the_same_seeds_give_the_same_episode_at_every_step(keywords):
    """PettingZoo's parallel_seed_test checks the first step only."""
    first, second, other = (make(3, **keywords) for _ in range(3))
    starts = [env.reset(seed=seed) for env, seed in ((first, 42), (second, 42), (other, 43))]
    assert data_equivalence(starts[0], starts[1], exact=True)
    assert not data_equivalence(starts[0][0], starts[2][0], exact=True)
    for env in (first, second):
        for number, agent in enumerate(env.possible_agents):
            env.action_space(agent).seed(number)
    steps = 0
    while first.agents:
        actions = [{agent: env.action_space(agent).sample() for agent in env.agents} for env in (first, second)]
        assert data_equivalence(*actions, exact=True)
        outcomes = [env.step(action) for env, action in zip((first, second), actions, strict=True)]
        assert data_equivalence(*outcomes, exact=True)
        assert first.agents == second.agents
        steps += 1
    assert steps == TICKS
    assert data_equivalence(first.reset(), second.reset(), exact=True)


def test_the_turn_based_arena_gives_the_same_ledgers():
    models = {agent: alma_env.UntrainedPredictor((1, 8, 8), 10, seed) for seed, agent in enumerate("abc")}
    keywords = {"agents": ["a", "b", "c"], "ticks": TICKS, "flops_budget": {"b": 1}}
    parallel, aec = arena.parallel_env(DIGITS, **keywords), arena.env(DIGITS, **keywords)
    parallel.reset(seed=0)
    aec.reset(seed=0)
    rewards: dict = {agent: [] for agent in models}
    while parallel.agents:
        if parallel.tick == 2:
            parallel.meters["b"].declare(2, reason="too much")
        for agent, reward in parallel.step({agent: models[agent] for agent in parallel.agents})[1].items():
            rewards[agent].append(reward)
    seen: dict = {agent: [] for agent in models}
    for agent in aec.agent_iter():
        _, reward, terminated, truncated, info = aec.last()
        seen[agent].append(reward)
        if agent == "b" and info["tick"] == 2:
            aec.unwrapped.meters["b"].declare(2, reason="too much")
        aec.step(None if terminated or truncated else models[agent])
    assert {agent: values[1:] for agent, values in seen.items()} == rewards
    assert [len(values) for values in rewards.values()] == [TICKS, 3, TICKS]
    for agent in models:
        assert rows(aec.unwrapped.ledgers[agent]) == rows(parallel.ledgers[agent])


def test_infos_are_those_of_almaenv_and_the_answers_of_rivals():
    env = make()
    models = {"a": Linear(1), "b": Linear(2)}
    _, infos = env.reset(seed=0, options={"predictors": {"a": models["a"]}})
    single = alma_env.make(DIGITS, ticks=TICKS)
    _, info = single.reset(seed=0, options={"predictor": models["a"]})
    public = ("error", "parameters", "comp", "refused")
    assert {name: value for name, value in infos["a"].items() if name != "rivals"} == info
    assert infos["b"]["rivals"] == {"a": {name: info[name] for name in public}}
    assert infos["a"]["rivals"]["b"]["error"] == 0.9
    json.dumps(infos)


# --- the shared budget -------------------------------------------------------------------


def bidding(**bids):
    return {agent: {"predictor": None, "bid": bid} for agent, bid in bids.items()}


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


# --- saving, copying and continuing -----------------------------------------------------------------


@pytest.mark.parametrize("keywords", SETTINGS, ids=["plain", "one is truncated", "shared budget"])
@pytest.mark.parametrize("stop", range(TICKS + 1))
@pytest.mark.parametrize("way", ["state", "pickle", "deepcopy"])
def test_an_episode_saved_at_any_tick_continues_to_the_same_ledgers(keywords, stop, way):
    def answers(env):
        shared = env.shared_flops_budget is not None
        for number, agent in enumerate(env.agents):
            if env.grants[agent] or not shared:
                env.meters[agent].declare(env.tick + number, reason="work")
        models = {
            agent: alma_env.UntrainedPredictor((1, 8, 8), 10, 10 * env.tick + number)
            for number, agent in enumerate(env.agents)
        }
        if not shared:
            return models
        return {agent: {"predictor": model, "bid": model.seed % 7} for agent, model in models.items()}

    whole = make(3, **keywords)
    whole.reset(seed=0)
    saved = None
    while whole.agents:
        if whole.tick == stop:
            saved = copy.deepcopy(whole) if way == "deepcopy" else pickle.dumps(whole)
            state = json.dumps(whole.state_dict())
        outcome = whole.step(answers(whole))
    if stop == TICKS:
        saved = copy.deepcopy(whole) if way == "deepcopy" else pickle.dumps(whole)
        state = json.dumps(whole.state_dict())
    if way == "state":
        again = make(3, **keywords)
        again.load_state_dict(json.loads(state))
    else:
        again = saved if way == "deepcopy" else pickle.loads(saved)
    assert again.tick == stop
    assert again.observations().keys() == set(again.agents)
    while again.agents:
        outcome_again = again.step(answers(again))
    if stop < TICKS:
        assert data_equivalence(outcome_again, outcome, exact=True)
    for agent in whole.possible_agents:
        assert rows(again.ledgers[agent]) == rows(whole.ledgers[agent])
    assert again.pool == whole.pool
    assert again.reset()[0].keys() == whole.reset()[0].keys()
    assert (
        again.observations()["agent_0"]["train"]["y"].tolist() == whole.observations()["agent_0"]["train"]["y"].tolist()
    )


def test_a_state_is_saved_between_ticks_and_loaded_by_an_equal_arena():
    env = make()
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.state_dict()
    env.reset(seed=0)
    state = env.state_dict()
    env.meters["b"].declare(5, reason="work")
    with pytest.raises(RuntimeError, match="agent 'b'.*5 FLOPs charged since tick 0"):
        env.state_dict()
    with pytest.raises(ValueError, match="shared_flops_budget=None in the saved state, 100 here"):
        make(shared_flops_budget=100).load_state_dict(state)
    with pytest.raises(ValueError, match="agents=.*in the saved state"):
        make(["a", "c"]).load_state_dict(state)


# --- arguments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"agents": []}, ValueError, "at least 1 agent"),
        ({"agents": 0}, ValueError, "at least 1 agent"),
        ({"agents": "ab"}, TypeError, "must be a list of names"),
        ({"agents": ["a", 1]}, TypeError, "1 must be a non-empty string"),
        ({"agents": ["a", "a"]}, ValueError, "'a' occurs twice"),
        ({"flops_budget": {"c": 1}}, ValueError, "flops_budget of agent 'c': unknown agent"),
        ({"flops_budget": {"a": 0}}, ValueError, "flops_budget=0: a budget must be positive"),
        ({"seats": 2}, ValueError, "seats=2: only with a shared budget"),
        ({"shared_flops_budget": 0}, ValueError, "shared_flops_budget=0: a budget must be positive"),
        ({"shared_flops_budget": 0.5}, TypeError, "shared_flops_budget=0.5: must be a whole number"),
        ({"shared_flops_budget": "1"}, TypeError, "shared_flops_budget='1'"),
        ({"shared_flops_budget": 9, "seats": 3}, ValueError, "seats=3: must lie between 1 and the number of agents, 2"),
        ({"shared_flops_budget": 9, "seats": 1.5}, TypeError, "seats=1.5: must be a whole number"),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_arguments_that_break_a_rule_are_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        make(**keywords)


def test_only_the_arena_needs_pettingzoo(monkeypatch):
    command = "import sys, alma_env, agents.cli.command, agents.cli.run_sweep; sys.exit('pettingzoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "alma_env.arena.arena")
    with pytest.raises(MissingPackageError, match=r"pip install 'alma-env\[rl\]'"):
        runpy.run_module("alma_env.arena.arena")
