"""Arguments of surrogates: what is refused by name, and numbers of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rl.models.learning_curve import curves_for, fit
from agents.rl.surrogates.surrogate import SurrogateEnv
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

from ..synthetic import with_replay_and_growth

pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_envs": 0}, "num_envs=0: must be at least 1 episode"),
        ({"num_envs": 2.0}, "num_envs=2.0: must be an integer, such as num_envs=2"),
        ({"actions": "multi"}, "no recorded run has replay; use actions='train' without replay, or"),
        ({"replay": True}, "no recorded run has replay"),
        ({"grow": True}, "no recorded run has grow"),
        ({"actions": "x"}, "actions='x': must be one of train, multi, flat"),
        ({"replay": "no"}, "replay='no': must be True or False"),
        ({"curves": []}, "curves=\\[\\]: must be a list with at least one Curve; leave curves out"),
        ({"curves": 3}, "curves=3: must be a list with at least one Curve"),
        ({"curves": [3]}, "curves=\\[3\\]: must be a list with at least one Curve"),
    ],
)
def test_actions_that_no_recorded_run_has_are_refused(curve, keywords, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SurrogateVectorEnv(**({"curves": [curve]} | keywords))


def test_missing_recordings_are_refused_with_the_remedy(file):
    with pytest.raises(ValueError, match="width=5: no runs in waits.npz \\(its widths are \\[4, 9\\]\\)"):
        curves_for("Digits-ALMA-v0", "sm", 5, file)
    with pytest.raises(ValueError, match="width='4': no runs in waits.npz \\(its widths are \\[4, 9\\]\\)"):
        curves_for("Digits-ALMA-v0", "sm", "4", file)
    with pytest.raises(ValueError, match="learner='ens': no runs in waits.npz, which has Digits-ALMA-v0: sm; name one"):
        curves_for("Digits-ALMA-v0", "ens", None, file)
    with pytest.raises(ValueError, match="width=\\(\\): must be at least one width; leave it out"):
        curves_for("Digits-ALMA-v0", "sm", (), file)
    with pytest.raises(ValueError, match="stream='EMNIST-ALMA-v0': no recorded runs come with the package"):
        curves_for("EMNIST-ALMA-v0", "sm", None, None)


def test_wrong_steps_are_refused(curve):
    env = SurrogateVectorEnv(3, curves=[curve])
    with pytest.raises(RuntimeError, match="step\\(\\) before reset"):
        env.step(np.zeros(3, int))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions of shape \\(2,\\): must be \\(3,\\)"):
        env.step(np.zeros(2, int))


def test_seeds_sizes_and_actions_of_numpy_are_those_of_python(curve):
    numpy, python = SurrogateVectorEnv(np.int64(2), curves=[curve]), SurrogateVectorEnv(2, curves=[curve])
    assert np.array_equal(numpy.reset(seed=np.int64(5))[0], python.reset(seed=5)[0])
    assert np.array_equal(numpy.step(np.array([True, False]))[1], python.step(np.array([1, 0]))[1])
    numpy, python = SurrogateEnv(curves=[curve]), SurrogateEnv(curves=[curve])
    assert np.array_equal(numpy.reset(seed=np.int64(5))[0], python.reset(seed=5)[0])
    assert numpy.step(np.True_)[1] == python.step(1)[1]


@pytest.mark.parametrize("kind", [SurrogateEnv, SurrogateVectorEnv])
def test_wrong_arguments_of_reset_are_refused_by_name(curve, kind):
    env = kind(curves=[curve])
    for name, wrong, message in (("seed", 0.5, "must be an integer"), ("options", 5, "must be a dict, for example {")):
        with pytest.raises(TypeError, match=f"{name}={wrong}: {message}"):
            env.reset(**{name: wrong})


def test_decisions_can_be_lists_and_need_an_episode(curve):
    of_lists, of_actions = (SurrogateVectorEnv(2, curves=[curve]) for _ in range(2))
    decisions = [[True, False, False], [False, False, False]]
    with pytest.raises(RuntimeError, match="there is no episode; call reset"):
        of_lists.advance(decisions)
    of_lists.reset(seed=0)
    of_actions.reset(seed=0)
    assert np.array_equal(of_lists.advance(decisions)[0], of_actions.step([1, 0])[0])


@pytest.mark.parametrize(
    ("actions", "given", "message"),
    [
        ("train", [0, 7, 0], "action=7 of episode 1: 7 is outside the numbers from 0 to 1 .*; give one of these"),
        ("train", [0, 1, -3], "action=-3 of episode 2: -3 is outside the numbers from 0 to 1"),
        ("train", [0.0, 1.0, 0.5], "actions of type float64: must be integers.*astype"),
        ("flat", [5, -1, 0], "action=5 of episode 0: 5 is outside the numbers from 0 to 4"),
        ("multi", [[0, 0, 0], [1, 0, 2], [0, 0, 0]], "action=\\[1 0 2\\] of episode 1: 2 is outside .* from 0 to 1"),
    ],
)
def test_actions_outside_the_space_are_refused_and_change_nothing(actions, given, message):
    env = SurrogateVectorEnv(3, curves=[fit(with_replay_and_growth())], actions=actions)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(given)
    assert env._tick.tolist() == [1, 1, 1]
    env.step(env.action_space.sample())


def test_the_first_reset_must_start_all_episodes(curve):
    env = SurrogateVectorEnv(3, curves=[curve])
    with pytest.raises(ValueError, match="reset_mask with 1 of 3 episodes: the first reset must start all"):
        env.reset(options={"reset_mask": np.array([True, False, False])})
    with pytest.raises(RuntimeError, match="step\\(\\) before reset"):
        env.step(np.zeros(3, int))
    with pytest.raises(ValueError, match="reset_mask of shape \\(3,\\) and dtype int64: must be one bool for each"):
        env.reset(options={"reset_mask": np.array([0, 1, 2])})
    observations, _ = env.reset(seed=0, options={"reset_mask": np.ones(3, bool)})
    assert observations in env.observation_space
