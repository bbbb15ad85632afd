"""The surrogate: checkers of other libraries, spaces, steps, seeds, errors."""

from __future__ import annotations

import dataclasses
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from agents.policies.learned.features import NAMES
from agents.rl.models.learning_curve import curves_for, fit
from agents.rl.models.regression import logit
from agents.rl.recorded import recordings, selection
from agents.rl.surrogates.fidelity import held_out, rank_correlation
from agents.rl.surrogates.surrogate import SurrogateEnv
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

from ..synthetic import TICKS, law, recorded, restarting, waits, with_replay_and_growth

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3

from agents.rl.learning.sb3 import JoinedVecEnv, SurrogateVecEnv


@pytest.mark.parametrize("width", [4, [4, 9], None])
def test_the_checkers_of_gymnasium_and_stable_baselines3_pass(file, width, recwarn):
    env = gym.make("alma_env:Digits-ALMA-Wait-Surrogate-v0", recorded=str(file), width=width)
    check_env(env.unwrapped)
    check_env_of_sb3(env.unwrapped)
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)]


@pytest.mark.parametrize("reward_on", ["test", "validation"])
@pytest.mark.parametrize(("stream", "widths"), [("Digits", 2), ("MNIST", 2), ("FashionMNIST", 1), ("CIFAR10", 1)])
def test_shipped_recordings_make_a_surrogate_without_a_file(stream, widths, reward_on):
    env = gym.make(f"alma_env:{stream}-ALMA-Wait-Surrogate-v0", reward_on=reward_on)
    check_env(env.unwrapped)
    check_env_of_sb3(env.unwrapped)
    assert len(env.unwrapped.vector.curves) == widths


@pytest.mark.parametrize("version", ["v0", "MO-v0", "v1"])
def test_a_file_of_own_runs_on_any_stream_names_the_stream_of_its_surrogate(version, tmp_path):
    id, own = f"alma_env:alma_env/Recorded-ALMA-Wait-Surrogate-{version}", str(tmp_path / "own.npz")
    runs = [dataclasses.replace(run, env="FashionMNIST-ALMA-v0") for run in waits(noise=0.1, seeds=(0, 1))]
    recordings.save(runs, tmp_path / "own.npz")
    env = gym.make(id, recorded=own, render_mode="rgb_array").unwrapped
    if version == "v0":
        check_env(env, skip_render_check=True)
    env.reset(seed=0)
    assert "FashionMNIST-ALMA-v0" in env._view().title
    with pytest.raises(ValueError, match="give recorded=FILE, written by `alma surrogate fit"):
        gym.make(id)
    with pytest.raises(ValueError, match="recorded='none.npz': cannot be read.*No such file"):
        gym.make(id, recorded="none.npz")
    recordings.save([*runs, *waits()], tmp_path / "own.npz")
    with pytest.raises(ValueError, match="runs on Digits-ALMA-v0, FashionMNIST-ALMA-v0; write the runs of one stream"):
        gym.make(id, recorded=own)


def test_runs_for_the_second_surrogate_are_left_out_by_the_first(tmp_path):
    runs = waits(noise=0.1, seeds=(0, 1))
    recordings.save([*runs, *map(restarting, runs[:3])], tmp_path / "own.npz")
    (curve,) = curves_for("Digits-ALMA-v0", "sm", 4, tmp_path / "own.npz")
    assert np.array_equal(curve.weights, fit(runs).weights)
    recordings.save([restarting(run) for run in runs], tmp_path / "own.npz")
    with pytest.raises(ValueError, match="which this surrogate cannot do"):
        curves_for("Digits-ALMA-v0", "sm", 4, tmp_path / "own.npz")


def test_the_shipped_surrogate_of_digits_ranks_held_out_schedules():
    for runs in recordings.groups(recordings.load(selection.shipped_file("Digits-ALMA-v0"))).values():
        assert rank_correlation(held_out(runs, episodes=4)) > 0.7


def test_the_spaces_equal_those_of_the_decision_environment(curve):
    real = gym.make("alma_env:Digits-ALMA-Wait-MO-v0", width=4).unwrapped
    ours = SurrogateVectorEnv(3, curves=[curve], reward="vector")
    assert ours.reward_space == real.reward_space
    assert ours.single_observation_space == real.observation_space
    assert ours.single_action_space == real.action_space


def test_gymnasium_makes_a_vector_environment(file):
    envs = gym.make_vec(
        "alma_env:Digits-ALMA-Wait-Surrogate-v0",
        5,
        vectorization_mode="vector_entry_point",
        recorded=str(file),
        width=4,
    )
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    observations, rewards, *_ = envs.step(envs.action_space.sample())
    assert observations in envs.observation_space
    assert rewards.shape == (5,)


def test_without_noise_a_step_follows_the_law():
    env = SurrogateVectorEnv(2, curves=[dataclasses.replace(fit(waits()), residuals=np.zeros((8, 512, 3)))])
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.array([0, 0]))
    observations, rewards, ended, _, infos = env.step(np.array([1, 0]))  # three mega-batches, at tick 3
    error, loss, wrong = law(float(logit(np.float64(0.9))), 3, 3, 0, 0, 0)
    assert rewards == pytest.approx([-1 / (1 + math.exp(-error)), -0.9], rel=0.01)
    seen = dict(zip(NAMES, observations[0].tolist(), strict=True))
    assert seen["validation_loss"] == pytest.approx(math.exp(loss) / math.log(10) / 2, rel=0.02)
    assert seen["validation_error"] == pytest.approx(wrong, rel=0.02)
    assert (seen["tick"], seen["pending"], seen["pending_share"]) == pytest.approx((4 / 20, 1 / 20, 1 / 4))
    assert infos["comp"] == pytest.approx([5e6, 0], rel=0.01)
    assert not ended.any()


def test_a_finished_episode_starts_again_and_reports_its_end(curve):
    env = SurrogateVectorEnv(4, curves=[curve], flops_price=1.0)
    env.reset(seed=1)
    returns = np.zeros(4)
    for tick in range(1, TICKS + 1):
        observations, rewards, ended, truncated, infos = env.step(np.array([1, 0, tick % 2, 1]))
        returns += rewards
        assert ended.tolist() == [tick == TICKS] * 4
        assert not truncated.any()
    spent = -infos["vector_reward"][:, 1]  # of the last tick
    assert infos["final_info"]["cer"][1] == pytest.approx(0.9 * (TICKS + 1))
    assert returns[1] == pytest.approx(-0.9 * TICKS)
    assert spent[0] > 0
    assert spent[1] == 0
    final = np.stack(infos["final_obs"])
    assert final[:, NAMES.index("tick")] == pytest.approx(1)
    assert final[1, NAMES.index("pending")] == 1
    assert final[0, NAMES.index("pending")] == 0
    assert observations[:, NAMES.index("tick")] == pytest.approx(1 / TICKS)
    assert observations[:, NAMES.index("trained")].tolist() == [0] * 4
    assert infos["cer"] == pytest.approx([0.9] * 4)
    assert infos["comp"].tolist() == [0] * 4


def test_an_episode_that_goes_on_has_no_final_info(curve):
    env = SurrogateVectorEnv(2, curves=[curve])
    env.reset(seed=0)
    env.step(np.array([1, 1]))
    env.reset(options={"reset_mask": np.array([False, True])})
    for _ in range(TICKS - 1):
        *_, infos = env.step(np.array([1, 1]))
    final = infos["final_info"]
    for name in ("cer", "comp", "vector_reward"):
        assert final[f"_{name}"].tolist() == [True, False]
        assert np.all(final[name][0] != 0)
        assert np.all(final[name][1] == 0)
        assert np.all(infos[name][1] != 0), name


def test_a_seed_fixes_all_random_numbers_and_a_single_environment_equals_a_vector_of_one(curve):
    def errors(env):
        env.reset(seed=5)
        return np.stack([env.step(np.ones(env.num_envs, int))[1] for _ in range(2 * TICKS)])

    assert np.array_equal(errors(SurrogateVectorEnv(8, curves=[curve])), errors(SurrogateVectorEnv(8, curves=[curve])))
    single, vector = SurrogateEnv(curves=[curve]), SurrogateVectorEnv(1, curves=[curve])
    single.reset(seed=5)
    vector.reset(seed=5)
    for _ in range(TICKS):
        observation, reward, ended, _, info = single.step(1)
        observations, rewards, ends, _, infos = vector.step(np.array([1]))
        assert reward == rewards[0]
        if not ended:
            assert np.array_equal(observation, observations[0])
    assert ended
    assert ends[0]
    assert info["cer"] == infos["final_info"]["cer"][0]
    with pytest.raises(RuntimeError, match="without an episode: call reset"):
        single.step(0)


def test_a_mask_starts_some_episodes_again(curve):
    env = SurrogateVectorEnv(3, curves=[curve])
    env.reset(seed=0)
    env.step(np.array([1, 1, 1]))
    observations, infos = env.reset(options={"reset_mask": np.array([True, False, True])})
    np.testing.assert_array_equal(infos["_vector_reward"], [True, False, True])
    assert observations[:, NAMES.index("tick")] * TICKS == pytest.approx([1, 2, 1])
    assert infos["comp"][1] > 0
    with pytest.raises(ValueError, match="reset_mask of shape \\(2,\\) and dtype bool: must be one bool for each of 3"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_with_next_step_an_ended_episode_starts_at_the_step_after_its_end(curve):
    env = SurrogateVectorEnv(2, curves=[curve], autoreset_mode="NextStep")
    reference = SurrogateVectorEnv(2, curves=[curve])
    assert env.metadata["autoreset_mode"] is env.autoreset_mode is AutoresetMode.NEXT_STEP
    env.reset(seed=3)
    reference.reset(seed=3)
    for tick in range(1, TICKS + 1):
        observations, rewards, ended, _, infos = env.step(np.array([1, tick % 2]))
        theirs, their_rewards, their_ends, _, their_infos = reference.step(np.array([1, tick % 2]))
        assert np.array_equal(rewards, their_rewards)
        assert np.array_equal(ended, their_ends)
    assert np.array_equal(observations, np.stack(their_infos["final_obs"]))
    assert infos["comp"][0] > infos["comp"][1] > 0
    for name, values in infos.items():
        assert np.array_equal(values, their_infos["final_info"][name]), name
    observations, rewards, ended, _, infos = env.step(np.array([1, 1]))  # the action is ignored
    assert np.array_equal(observations, theirs)
    assert rewards.tolist() == [0, 0]
    assert not ended.any()
    assert infos["comp"].tolist() == [0, 0]
    env.step(np.array([1, 0]))
    assert env._tick.tolist() == [2, 2]


def test_with_autoreset_disabled_ended_episodes_wait_for_a_mask(curve):
    env = SurrogateVectorEnv(2, curves=[curve], autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=3)
    for _ in range(5):
        env.step(np.array([0, 0]))
    env.reset(options={"reset_mask": np.array([False, True])})
    for _ in range(TICKS - 5):
        _, _, ended, _, _ = env.step(np.array([0, 0]))
    assert ended.tolist() == [True, False]
    with pytest.raises(RuntimeError, match="after the end of 1 episodes: autoreset is disabled; start them again with"):
        env.step(np.array([0, 0]))
    observations, _ = env.reset(options={"reset_mask": ended})
    assert observations[:, NAMES.index("tick")] * TICKS == pytest.approx([1, TICKS - 4])
    env.step(np.array([0, 0]))
    with pytest.raises(ValueError, match="autoreset_mode='never': must be one of 'NextStep', 'SameStep', 'Disabled'"):
        SurrogateVectorEnv(2, curves=[curve], autoreset_mode="never")


def test_a_vector_reward_is_that_of_the_infos_and_has_no_effect_on_the_episode(curve):
    scalar, vector = (SurrogateVectorEnv(3, curves=[curve], reward=reward) for reward in ("scalar", "vector"))
    scalar.reset(seed=1)
    vector.reset(seed=1)
    for _ in range(TICKS):
        observations, rewards, *_, infos = scalar.step(np.array([1, 0, 1]))
        theirs, vectors, *_, their_infos = vector.step(np.array([1, 0, 1]))
        assert np.array_equal(observations, theirs)
        assert np.array_equal(vectors, infos["vector_reward"])
        assert np.array_equal(vectors, their_infos["vector_reward"])
        assert rewards.tolist() == vectors[:, 0].tolist()  # the prices are 0
    single = SurrogateEnv(curves=[curve], reward="vector")
    _, info = single.reset(seed=1)
    assert info["vector_reward"] == pytest.approx([-0.9, 0, -1e-4])  # of tick 0
    assert single.step(1)[1] in single.reward_space
    with pytest.raises(AttributeError, match="reward_space: the rewards of this environment are numbers"):
        scalar.reward_space  # noqa: B018 - the property raises
    with pytest.raises(ValueError, match="Stable-Baselines3 needs rewards that are numbers"):
        SurrogateVecEnv(vector)


def test_masks_allow_replay_and_growth_where_they_have_an_effect():
    env = SurrogateVectorEnv(3, curves=[fit(with_replay_and_growth())], actions="flat")
    env.reset(seed=0)
    first = [True, True, False, False, False]  # no earlier mega-batch, no earlier training
    assert env.action_masks().tolist() == [first] * 3
    env.step(np.array([0, 1, 1]))
    assert env.action_masks().tolist() == [first, [True] * 5, [True] * 5]
    single = SurrogateEnv(curves=env.curves, actions="multi")
    single.reset(seed=0)
    assert single.action_masks().tolist() == [True, True, True, False, True, False]
    single.step(np.array([1, 0, 0]))
    assert single.action_masks().tolist() == [True] * 6


def test_each_episode_draws_one_of_several_curves(file):
    env = SurrogateVectorEnv(400, stream="Digits-ALMA-v0", recorded=file)
    one = dataclasses.replace(env.curves[0], first_error=0.5)
    env = SurrogateVectorEnv(400, curves=[one, env.curves[1]])
    _, infos = env.reset(seed=0)
    assert set(infos["cer"]) == {0.5, 0.9}
    assert 120 < (infos["cer"] == 0.5).sum() < 280


def test_recorded_replay_and_growth_have_effects():
    curve = fit(with_replay_and_growth())
    env = SurrogateVectorEnv(3, curves=[curve], actions="multi")
    env.reset(seed=0)
    flags = np.array([[1, 0, 0]] * 3)
    env.step(flags)
    _, rewards, *_, infos = env.step(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]]))
    assert rewards[1] > rewards[0]  # replay helps, by the law
    assert rewards[2] > rewards[0]
    assert -infos["vector_reward"][:, 2] * 1e6 == pytest.approx([100, 100, 200])
    assert infos["comp"][1] > infos["comp"][0]


def test_replay_has_no_effect_where_there_is_nothing_to_repeat():
    quiet = dataclasses.replace(fit(with_replay_and_growth()), residuals=np.zeros((8, 512, 3)))
    env = SurrogateVectorEnv(2, curves=[quiet], actions="multi")
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros((2, 3), int))
    _, first, *_ = env.step(np.array([[1, 0, 0], [1, 1, 0]]))
    _, second, *_ = env.step(np.array([[1, 0, 0], [1, 1, 0]]))
    assert first[0] == first[1]
    assert second[0] < second[1]


def test_a_replay_that_repeats_nothing_is_no_example_of_replay():
    once = [recorded(f"at {tick}", lambda t, tick=tick: (t == tick, 1, 0)) for tick in range(1, TICKS)]
    assert not fit([*waits(), *once]).replays


def test_the_environment_of_stable_baselines3_has_the_same_episodes(curve):
    env = SurrogateVecEnv(SurrogateVectorEnv(3, curves=[curve]))
    reference = SurrogateVectorEnv(3, curves=[curve])
    env.seed(4)
    assert np.array_equal(env.reset(), reference.reset(seed=4)[0])
    for tick in range(1, TICKS + 1):
        actions = np.array([1, 0, tick % 2])
        observations, rewards, ended, of_episodes = env.step(actions)
        theirs, their_rewards, their_ends, _, infos = reference.step(actions)
        assert np.array_equal(observations, theirs)
        assert rewards == pytest.approx(their_rewards)
        assert np.array_equal(ended, their_ends)
    for row in range(3):
        assert np.array_equal(of_episodes[row]["terminal_observation"], infos["final_obs"][row])
        assert of_episodes[row]["cer"] == infos["final_info"]["cer"][row]


def test_the_environments_of_stable_baselines3_have_no_unknown_attributes(curve):
    one = SurrogateVecEnv(SurrogateVectorEnv(2, curves=[curve]))
    for env in (one, JoinedVecEnv([one])):
        assert env.has_attr("action_masks")
        assert not env.has_attr("nonexistent")
