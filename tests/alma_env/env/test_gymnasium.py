"""Gymnasium: checker, wrappers, specs, vector environments and copies."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

import alma_env

from .predictors import TICKS


def test_gymnasiums_checker_passes_through_the_registered_id():
    from gymnasium.utils.env_checker import check_env

    env = gym.make("alma_env:Digits-ALMA-v0", ticks=TICKS)
    check_env(env.unwrapped, skip_render_check=False)


def test_gymnasiums_standard_wrappers_apply():
    env = gym.make("Digits-ALMA-v0", ticks=TICKS)
    env = gym.wrappers.TransformReward(env, lambda reward: 100 * reward)
    env = gym.wrappers.TimeLimit(env, max_episode_steps=3)
    env = gym.wrappers.RecordEpisodeStatistics(env)
    env = gym.wrappers.TimeAwareObservation(gym.wrappers.FilterObservation(env, ["train"]))
    env = gym.wrappers.Autoreset(env)
    env.reset(seed=0)
    for _ in range(3):
        *_, truncated, info = env.step(None)
    assert truncated
    assert info["episode"]["l"] == 3
    env.step(None)
    assert env.unwrapped.tick == 0


def test_specs_round_trip_through_json():
    spec = gym.make("Digits-ALMA-v0", ticks=7).spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert again.unwrapped.ticks == 7


@pytest.mark.parametrize("vectorize", ["sync", "async", "async-shared"])
def test_vector_environments_run(vectorize):
    def build():
        return gym.make("alma_env:Digits-ALMA-v0", ticks=TICKS)

    same_step = gym.vector.AutoresetMode.SAME_STEP
    if vectorize == "sync":
        envs = gym.vector.SyncVectorEnv([build, build], autoreset_mode=same_step)
    else:
        shared = vectorize == "async-shared"
        envs = gym.vector.AsyncVectorEnv([build, build], shared_memory=shared, autoreset_mode=same_step)
    try:
        observations, _ = envs.reset(seed=[1, 2])
        single = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
        expected, _ = single.reset(seed=2)
        np.testing.assert_array_equal(observations["train"]["x"][1], expected["train"]["x"])
        for tick in range(1, TICKS + 1):
            actions = tuple(envs.single_action_space.sample() for _ in range(2))
            _, rewards, terminated, truncated, _ = envs.step(actions)
            _, reward, *_ = single.step(actions[1])
            assert rewards[1] == reward
            assert terminated.tolist() == [tick == TICKS] * 2
            assert not truncated.any()
    finally:
        envs.close()


def test_environment_action_and_observation_can_be_pickled_and_copied(env):
    observation, _ = env.reset(seed=0)
    env.step(None)
    action = env.action_space.sample()
    for clone in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert clone.tick == 1
        twin = pickle.loads(pickle.dumps(action))
        assert clone.step(twin)[1] == copy.deepcopy(env).step(copy.deepcopy(action))[1]
        assert clone.action_space == env.action_space
        assert clone.observation_space == env.observation_space
    again = pickle.loads(pickle.dumps(copy.deepcopy(observation)))
    np.testing.assert_array_equal(again["train"]["x"], observation["train"]["x"])
