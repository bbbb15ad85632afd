"""The arena passes the checks of PettingZoo, and its two APIs give the same ledgers."""

from __future__ import annotations

import pytest
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

import alma_env
from alma_env import arena

from .arenas import DIGITS, SETTINGS, TICKS, make, rows


@SETTINGS
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


@SETTINGS
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


def test_after_a_refused_action_all_agents_of_the_turn_based_arena_act_again():
    game = arena.env(DIGITS, ["a", "b"], ticks=TICKS)
    game.reset(seed=0)
    game.step("no module")
    with pytest.raises(TypeError, match="agent 'a'.*: action of type str"):
        game.step(None)
    assert (game.agent_selection, game.unwrapped.tick) == ("a", 0)
    game.step(None)
    game.step(None)
    assert (game.agent_selection, game.unwrapped.tick) == ("a", 1)


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
