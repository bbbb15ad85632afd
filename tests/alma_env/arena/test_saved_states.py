"""Arenas are saved, copied and continued."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from gymnasium.utils.env_checker import data_equivalence

import alma_env

from .arenas import SETTINGS, TICKS, make, rows


@SETTINGS
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


def test_a_refused_state_changes_no_agent():
    first, second = make(["a", "b"]), make(["a", "b"])
    for env, seed in ((first, 0), (second, 3)):
        env.reset(seed=seed)
    first.step({"a": None, "b": None})
    state = first.state_dict()
    damaged = json.loads(json.dumps(state))
    del damaged["envs"]["b"]["meter"]
    for wrong, message in (
        (damaged, "agent 'b'.*damaged"),
        ({**state, "grants": 3}, "damaged"),
        ({**state, "envs": {}}, "'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            second.load_state_dict(wrong)
    with second.meters["b"], pytest.raises(RuntimeError, match="agent 'b'.*the meter is running"):
        second.load_state_dict(state)
    assert second.tick == 0
    assert [len(ledger) for ledger in second.ledgers.values()] == [1, 1]
    second.load_state_dict(state)
    assert [len(ledger) for ledger in second.ledgers.values()] == [2, 2]


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
