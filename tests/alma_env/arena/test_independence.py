"""Agents on one stream do not influence each other, and each has the ledger of an environment of its own."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

import alma_env
from alma_env import UnmeteredTrainingError

from ..predictors import train
from .arenas import DIGITS, TICKS, Linear, make, play, rows


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
