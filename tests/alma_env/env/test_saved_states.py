"""Saving and continuing an episode."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import time

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import UnmeteredTrainingError
from alma_env.episode import Episode

from ..predictors import train
from .predictors import TICKS, Noisy


def play(env, model, observation, until):
    while env.tick < until:
        with env.meter:
            torch.manual_seed(env.tick)
            train(model, observation)
        observation, *_ = env.step(model)
    return observation


@pytest.mark.parametrize("stop", range(TICKS + 1))
def test_an_episode_saved_at_any_tick_continues_to_the_same_ledger(stop):
    torch.manual_seed(0)
    start = Noisy()
    whole = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    model = copy.deepcopy(start)
    observation, _ = whole.reset(seed=0, options={"predictor": model})
    play(whole, model, observation, TICKS)

    first = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    model = copy.deepcopy(start)
    observation, _ = first.reset(seed=0, options={"predictor": model})
    play(first, model, observation, stop)
    state = pickle.loads(pickle.dumps(first.state_dict()))

    second = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    second.load_state_dict(state)
    assert second.tick == stop
    if stop < TICKS:
        play(second, model, second.observation(), TICKS)

    def rows(env):
        return [(r.error, r.flops, r.paper_flops, r.parameters, r.digest) for r in env.ledger]

    assert rows(second) == rows(whole)


def test_a_saved_state_has_the_keys_that_earlier_versions_read(env):
    env.reset(seed=0)
    assert sorted(env.state_dict()) == [
        "declared_at_deployment",
        "deployed",
        "generator",
        "known",
        "ledger",
        "meter",
        "protocol",
        "steady_flops",
        "stream_seed",
        "total_at_deployment",
    ]


def test_an_episode_is_read_from_the_json_that_it_wrote(env):
    env.reset(seed=0, options={"predictor": env.action_space.sample()})
    episode = env._episode
    assert Episode.from_dict(json.loads(json.dumps(episode.to_dict()))) == episode
    with pytest.raises(dataclasses.FrozenInstanceError):
        episode.stream_seed = 1


def test_a_state_of_another_protocol_is_refused(env):
    env.reset(seed=0)
    other = alma_env.make("Digits-ALMA-v0", ticks=TICKS + 1)
    with pytest.raises(ValueError, match="ticks=5 in the saved state, 6 here"):
        other.load_state_dict(env.state_dict())


def test_a_state_is_not_saved_in_the_middle_of_a_tick(env):
    env.reset(seed=0)
    with env.meter:
        torch.ones(2, 2) @ torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="16 FLOPs charged since tick 0"):
        env.state_dict()


def test_steady_inference_costs_are_saved_and_deleted_at_reset(env):
    env.reset(seed=0, options={"predictor": env.action_space.sample()})
    state = env.state_dict()
    assert len(state["steady_flops"]) == 1
    other = copy.deepcopy(env)
    other.load_state_dict(state)
    assert other.state_dict() == state
    env.reset(seed=0)
    assert env.state_dict()["steady_flops"] == []


def test_another_normalisation_is_another_protocol():
    x, y = np.zeros((100, 3, 4, 4), np.float32), np.arange(100) % 2
    first, second = (alma_env.AlmaEnv(alma_env.from_arrays((x, y), (x, y), mean=mean), 5) for mean in (0.0, 0.5))
    first.reset(seed=0)
    with pytest.raises(ValueError, match="mean="):
        second.load_state_dict(first.state_dict())


@pytest.mark.parametrize("way", ["state", "copy"])
def test_a_predictor_trained_before_saving_can_be_deployed_after_loading(env, way):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
    env.step(None)
    if way == "copy":
        other = copy.deepcopy(env)
    else:
        other = alma_env.make("Digits-ALMA-v0", ticks=env.ticks)
        other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    restored = copy.deepcopy(model)
    for one, predictor in ((env, model), (other, restored)):
        one.step(predictor)
    assert other.ledger[2].error == env.ledger[2].error
    with torch.no_grad():
        restored.weight.add_(1.0)
    with pytest.raises(UnmeteredTrainingError):
        other.step(restored)


class WithTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.sin(torch.arange(64.0)))
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1).float() + self.table)


@pytest.mark.parametrize("way", ["state", "copy"])
def test_what_was_known_before_the_episode_is_known_after_loading(way):
    env, model = alma_env.make("Digits-ALMA-v0", ticks=3), WithTable()
    env.reset(seed=0, options={"predictor": model})
    env.step(None)
    if way == "copy":
        other = copy.deepcopy(env)
    else:
        other = alma_env.make("Digits-ALMA-v0", ticks=3)
        other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    for one, predictor in ((other, copy.deepcopy(model)), (env, model)):
        with one.meter:
            train(predictor, one.observation(), 1)
        one.step(predictor)
    assert other.ledger[2].error == env.ledger[2].error


def test_a_state_that_cannot_be_loaded_changes_nothing():
    env, other = (alma_env.make("Digits-ALMA-v0", ticks=3) for _ in range(2))
    env.reset(seed=0)
    env.step(None)
    other.reset(seed=5)
    before = other.state_dict()
    with other.meter, pytest.raises(RuntimeError, match="the meter is running"):
        other.load_state_dict(env.state_dict())
    assert other.state_dict() == before


def test_weights_of_before_the_saving_are_known_after_loading(env):
    model = Noisy()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    initial = copy.deepcopy(model.state_dict())
    with env.meter:
        train(model, observation)
    env.step(model)
    resumed = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    resumed.load_state_dict(json.loads(json.dumps(env.state_dict())))
    for one in (env, resumed):
        again = copy.deepcopy(model)
        with one.meter:
            again.load_state_dict(initial)
            train(again, one.observation())
        one.step(again)
        assert one.ledger[2].comp > 0


def test_weights_of_a_network_that_is_gone_are_known_after_loading(env):
    model = Noisy()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
    kept = {name: one.numpy().copy() for name, one in model.state_dict().items()}
    del model
    gc.collect()
    env.step(None)
    resumed = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    resumed.load_state_dict(json.loads(json.dumps(env.state_dict())))
    for one in (env, resumed):
        again = Noisy()
        with one.meter:
            again.load_state_dict({name: torch.from_numpy(array) for name, array in kept.items()})
            train(again, one.observation())
        one.step(again)
        assert one.ledger[2].comp > 0


def test_a_copy_and_a_pickle_keep_the_seconds_of_the_tick(env):
    env.reset(seed=0)
    time.sleep(0.2)
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        other.step(None)
        assert other.ledger[1].seconds >= 0.2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.pop("generator"), "KeyError: 'generator'"),
        (lambda state: state.update(generator={}), "ValueError: state must be for a PCG64 RNG"),
        (lambda state: state.pop("meter"), "KeyError: 'meter'"),
        (lambda state: state.update(meter={"total": 0}), "KeyError: 'declared'"),
        (lambda state: state.pop("ledger"), "KeyError: 'ledger'"),
        (lambda state: state.update(ledger=""), "has no tick"),
        (lambda state: state.update(ledger="{}"), "line 1: columns"),
        (lambda state: state.update(known=3), "TypeError"),
    ],
)
def test_a_damaged_state_changes_nothing(env, damage, message):
    env.reset(seed=0)
    state = env.state_dict()
    damage(state)
    other = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    other.reset(seed=5)
    other.meter.declare(7, reason="work")
    before = other.meter.state_dict()
    with pytest.raises(
        ValueError, match=rf"the saved state is damaged \(.*{message}.*; give what state_dict\(\) returned"
    ):
        other.load_state_dict(state)
    assert (other.meter.state_dict(), other.stream_seed) == (before, 5)
