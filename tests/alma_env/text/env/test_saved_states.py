"""Episodes of text are saved, copied and continued."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import nn

pytest.importorskip("tokenizers")
from alma_env import AlmaEnv

from .predictors import LENGTH, TICKS, VOCABULARY, Bigram, Make, assert_same, play, train


@pytest.mark.parametrize("stop", range(TICKS + 1))
def test_an_episode_saved_at_any_tick_continues_to_the_same_ledger(make: Make, stop: int) -> None:
    def play_until(env: AlmaEnv, model: nn.Module, until: int) -> None:
        while env.tick < until:
            with env.meter:
                train(model, env.observation())
            env.step(model)

    def rows(env: AlmaEnv) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in env.ledger.records()]

    whole, model = make(), Bigram(0)
    play(whole, model, seed=2)
    first, started = make(), Bigram(0)
    first.reset(seed=2, options={"predictor": started})
    play_until(first, started, stop)
    second = make()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert_same(second.observation(), first.observation())
    play_until(second, copy.deepcopy(started), TICKS)
    assert rows(second) == rows(whole)


@pytest.mark.parametrize("change", [{"vocabulary_size": 301}, {"sequence_length": 16}, {"train": "other"}])
def test_a_state_of_another_text_or_size_is_refused(make: Make, tmp_path: Path, change: dict[str, Any]) -> None:
    if "train" in change:
        (tmp_path / "other.txt").write_text("other text\n\n" * 9)
        change = {"train": tmp_path / "other.txt"}
    env = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="in the saved state, .* here: .* make one with the saved values"):
        make(**change).load_state_dict(env.state_dict())


def test_environment_action_and_observation_can_be_pickled_and_copied(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    env.step(None)
    action = env.action_space.sample()
    assert action(torch.zeros(2, LENGTH, dtype=torch.int32)).shape == (2, LENGTH, VOCABULARY)
    reward = copy.deepcopy(env).step(copy.deepcopy(action))[1]
    pickled = pickle.dumps(env)
    assert len(pickled) < 20_000  # paths, not tokens
    for clone in (pickle.loads(pickled), copy.deepcopy(env)):
        assert clone.tick == 1
        assert clone.step(copy.deepcopy(action))[1] == reward
        assert clone.action_space == env.action_space
        assert clone.observation_space == env.observation_space
        assert clone.protocol() == env.protocol()
    assert_same(pickle.loads(pickle.dumps(copy.deepcopy(observation))), observation)
    assert env.tick == 1


def test_specs_round_trip_through_json() -> None:
    spec = gym.make("alma_env:Text-ALMA-v0", train="tiny", ticks=3, vocabulary_size=400).spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json())).unwrapped
    assert isinstance(again, AlmaEnv)
    assert (again.ticks, again.data.classes) == (3, 400)
