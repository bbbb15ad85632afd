"""MO-Gymnasium runs unmodified: ``make``, its wrappers, its vector environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("mo_gymnasium", reason="the package mo-gymnasium is not installed")
import mo_gymnasium
from mo_gymnasium.wrappers import LinearReward, MONormalizeReward, MORecordEpisodeStatistics
from mo_gymnasium.wrappers.vector import MORecordEpisodeStatistics as MOVectorStatistics
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv

SMALL = {"ticks": 4, "width": 4, "epochs": 1}
REAL, SURROGATE = "alma_env:Digits-ALMA-Wait-MO-v0", "alma_env:Digits-ALMA-Wait-Surrogate-MO-v0"
BOTH = pytest.mark.parametrize(("id", "keywords"), [(REAL, SMALL), (SURROGATE, {"width": 4})])


def play(env):
    env.reset(seed=0)
    ended, rewards = False, []
    while not ended:
        _, reward, ended, _, info = env.step(1)
        rewards.append(reward)
    return np.array(rewards), info


@BOTH
def test_make_returns_vector_rewards_in_the_reward_space(id, keywords):
    env = mo_gymnasium.make(id, **keywords)
    rewards, info = play(env)
    assert rewards.shape[1:] == env.unwrapped.reward_space.shape == (3,)
    assert all(env.unwrapped.reward_space.contains(reward) for reward in rewards)
    assert np.array_equal(info["vector_reward"], rewards[-1])


@BOTH
def test_linear_reward_is_the_reward_of_the_scalar_environment_with_these_prices(id, keywords):
    weighted, info = play(LinearReward(mo_gymnasium.make(id, **keywords), weight=np.array([1.0, 2e5, 3.0])))
    prices = {"flops_price": 2e5, "parameter_price": 3.0}
    priced, own = play(gym.make(id.replace("-MO", ""), **prices, **keywords))
    assert weighted.ndim == 1
    np.testing.assert_allclose(weighted, priced)
    np.testing.assert_array_equal(info["vector_reward"], own["vector_reward"])


def test_linear_reward_refuses_an_environment_whose_rewards_are_numbers():
    with pytest.raises(AttributeError, match="make it with reward='vector', or by the id that ends in -MO-v0"):
        LinearReward(gym.make(SURROGATE.replace("-MO", ""), width=4))


@BOTH
def test_statistics_of_an_episode_are_vectors(id, keywords):
    rewards, info = play(MORecordEpisodeStatistics(mo_gymnasium.make(id, **keywords), gamma=0.9))
    np.testing.assert_allclose(info["episode"]["r"], rewards.sum(0), rtol=1e-6)


def test_a_normalised_reward_changes_one_part_and_not_the_info():
    env = MONormalizeReward(mo_gymnasium.make(SURROGATE, width=4), idx=0)
    rewards, info = play(env)
    assert rewards[-1][0] != info["vector_reward"][0]
    assert rewards[-1][2] == info["vector_reward"][2]


@pytest.mark.parametrize("native", [False, True])
def test_the_statistics_of_vector_environments_are_vectors(native):
    if native:
        envs = gym.make_vec(SURROGATE, 2, vectorization_mode="vector_entry_point", width=4)
    else:
        envs = MOSyncVectorEnv([lambda: mo_gymnasium.make(SURROGATE, width=4)] * 2)
    envs = MOVectorStatistics(envs)
    envs.reset(seed=0)
    totals = np.zeros((2, 3))
    for _ in range(20):
        _, rewards, ended, _, infos = envs.step(np.array([0, 1]))
        totals += rewards
    assert ended.all()
    np.testing.assert_allclose(infos["episode"]["r"], totals, rtol=1e-4)
