"""SuperSuit's wrappers run unmodified."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("supersuit", reason="the package supersuit is not installed")
from supersuit import clip_reward_v0, frame_stack_v1, gym_vec_env_v0, sticky_actions_v0

SMALL = {"ticks": 4, "width": 4, "epochs": 1}


@pytest.mark.parametrize(
    ("id", "keywords"),
    [("alma_env:Digits-ALMA-Wait-v0", SMALL), ("alma_env:Digits-ALMA-Wait-Surrogate-v0", {"width": 4})],
)
def test_stacked_frames_sticky_actions_and_clipped_rewards_play_an_episode(id, keywords):
    env = gym.make(id, **keywords)
    env = frame_stack_v1(sticky_actions_v0(clip_reward_v0(env), 0.5), 2)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (26,)
    ended = False
    while not ended:
        observation, reward, ended, truncated, _ = env.step(1)
        assert -1 <= reward <= 0
        assert not truncated
    assert np.array_equal(env.observation_space.shape, observation.shape)


def test_a_vector_environment_of_supersuit_runs():
    env = gym.make("alma_env:Digits-ALMA-Wait-Surrogate-v0", width=4)
    envs = gym_vec_env_v0(env, num_envs=2, multiprocessing=False)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (2, 13)
    assert envs.step(np.array([0, 1]))[1].shape == (2,)
