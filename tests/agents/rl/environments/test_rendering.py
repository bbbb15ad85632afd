"""Pictures of the decision environments and surrogates."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RenderCollection

from agents.rl.learning.sb3 import SurrogateVecEnv
from agents.rl.models import fixed_waits
from agents.rl.models.learning_curve import fit
from agents.rl.recorded import recordings, selection
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

from ..synthetic import TICKS, waits, with_replay_and_growth

REAL = "Digits-ALMA-Wait-v0"
SURROGATE = "Digits-ALMA-Wait-Surrogate-v0"
SMALL = {REAL: {"ticks": 4, "width": 4, "epochs": 1}, SURROGATE: {"width": 4}}


@pytest.fixture(scope="module")
def growing():
    return [fit(with_replay_and_growth())]


def play(env, every=2):
    env.reset(seed=0)
    ended, tick = False, 0
    rewards = []
    while not ended:
        tick += 1
        _, reward, terminated, truncated, _ = env.step(int(tick % every == 0))
        rewards.append(reward)
        ended = terminated or truncated
    return rewards


@pytest.mark.parametrize("id", SMALL)
@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_an_episode_is_drawn_to_its_last_tick(id, mode):
    env = RenderCollection(gym.make(id, render_mode=mode, **SMALL[id]))
    play(env)
    frames = env.render()
    if mode == "rgb_array":
        assert {frame.shape for frame in frames} == {(420, 720, 3)}
        assert len({frame.tobytes() for frame in frames}) == len(frames)
    else:
        ticks = len(frames) - 1
        assert [int(line.split("/")[0].removeprefix("tick")) for line in frames] == [*range(ticks + 1)]
        assert [line.endswith("trained") for line in frames] == [
            tick > 0 and tick % 2 == 0 for tick in range(ticks + 1)
        ]


@pytest.mark.parametrize("id", SMALL)
def test_human_rendering_draws_at_reset_and_step(id, capsys):
    env = gym.make(id, render_mode="human", **SMALL[id])
    rewards = play(env)
    env.close()
    assert len(capsys.readouterr().out.splitlines()) == len(rewards) + 1


@pytest.mark.parametrize("id", SMALL)
def test_an_unknown_mode_is_refused_with_the_known_ones_and_none_is_a_mode(id):
    with pytest.raises(ValueError, match="render_mode='depth_array': must be None or one of 'human', 'rgb_array'"):
        gym.make(id, render_mode="depth_array", **SMALL[id])
    assert gym.make(id, render_mode=None, **SMALL[id]).render_mode is None


@pytest.mark.parametrize("id", SMALL)
def test_nothing_can_be_drawn_before_the_first_reset(id):
    with pytest.raises(RuntimeError, match="render\\(\\) before reset\\(\\)"):
        gym.make(id, render_mode="ansi", **SMALL[id]).unwrapped.render()


def test_drawing_changes_no_episode_of_a_surrogate():
    drawn = gym.make(SURROGATE, render_mode="rgb_array", width=4)
    drawn.reset(seed=0)
    drawn.render()  # simulates the fixed waits
    assert play(drawn) == play(gym.make(SURROGATE, width=4))


def test_growth_of_a_surrogate_is_marked(growing):
    env = SurrogateVectorEnv(1, curves=growing, actions="flat", render_mode="ansi")
    env.reset(seed=0)
    said = []
    for action in (1, 0, 3):  # train, wait, train after growth
        env.step(np.array([action]))
        said.append(env.render()[0].rpartition(", ")[2])
    assert said == ["trained", "waited", "trained and grew"]


def test_a_vector_environment_draws_each_episode_and_the_ended_ones_to_their_end(growing):
    env = SurrogateVectorEnv(3, curves=growing, render_mode="ansi")
    env.reset(seed=0)
    for tick in range(1, TICKS + 1):
        env.step(np.array([1, 0, tick % 2]))
    assert [frame.split("  ")[0] for frame in env.render()] == [f"tick {TICKS}/{TICKS}"] * 3
    env.step(np.array([0, 0, 0]))  # of the next episodes
    assert [frame.split()[1] for frame in env.render()] == [f"1/{TICKS}"] * 3
    env.reset(options={"reset_mask": np.array([True, False, False])})
    assert [frame.split()[1] for frame in env.render()] == [f"0/{TICKS}", *[f"1/{TICKS}"] * 2]


def test_the_last_picture_has_the_fixed_waits_of_its_own_curve(growing):
    env = SurrogateVectorEnv(8, curves=[*growing, fit(waits())], render_mode="ansi")
    env.reset(seed=0)
    before = [env.view(row).fixed_waits for row in range(8)]
    assert len({id(curves) for curves in before}) == 2
    for _ in range(TICKS):
        env.step(np.zeros(8, int))
    assert all(env.view(row).fixed_waits is before[row] for row in range(8))  # although new episodes have started


def test_an_episode_that_starts_in_the_next_step_is_drawn_from_tick_0(growing):
    env = SurrogateVectorEnv(2, curves=growing, render_mode="ansi", autoreset_mode="NextStep")
    env.reset(seed=0)
    for _ in range(TICKS):
        env.step(np.array([1, 0]))
    shown = []
    for _ in range(3):
        shown.append([frame.split("error")[0].removeprefix("tick").strip() for frame in env.render()])
        env.step(np.array([1, 0]))
    assert shown == [[f"{TICKS}/{TICKS}"] * 2, [f"0/{TICKS}"] * 2, [f"1/{TICKS}"] * 2]


def test_a_pickled_environment_draws_the_same_picture():
    env = gym.make(REAL, render_mode="rgb_array", **SMALL[REAL]).unwrapped
    env.reset(seed=0)
    env.step(1)
    picture = env.render()
    assert np.array_equal(pickle.loads(pickle.dumps(env)).render(), picture)


def test_the_images_of_a_surrogate_reach_stable_baselines3(growing):
    env = SurrogateVecEnv(SurrogateVectorEnv(2, curves=growing, render_mode="rgb_array"))
    env.reset()
    assert [image.shape for image in env.get_images()] == [(420, 720, 3)] * 2
    assert env.render(mode="rgb_array").shape == (840, 720, 3)
    assert SurrogateVecEnv(SurrogateVectorEnv(2, curves=growing)).get_images() == [None, None]


def test_the_fixed_waits_of_a_surrogate_are_those_that_it_simulates():
    env = gym.make(SURROGATE, width=4, render_mode="ansi")
    env.reset(seed=0)
    drawn = env.unwrapped.vector.view(0).fixed_waits
    assert list(drawn) == [1, 5, 10, 20]
    for wait, errors in drawn.items():
        assert np.ptp(errors[:wait]) == 0
        recorded = fixed_waits.of_recordings(_recorded(width=4))[wait]
        assert errors.sum() == pytest.approx(recorded.sum(), rel=0.1)


def _recorded(width):
    return [one for one in recordings.load(selection.shipped_file("Digits-ALMA-v0")) if one.width == width]


def test_the_fixed_waits_of_a_real_stream_are_recorded_runs_of_the_same_learner():
    env = gym.make(REAL, width=4).unwrapped
    expected = fixed_waits.of_recordings(_recorded(width=4))
    assert list(env.fixed_waits) == [1, 5, 10, 20]
    assert all(np.array_equal(env.fixed_waits[wait], expected[wait]) for wait in expected)
    assert list(gym.make(REAL, width=8).unwrapped.fixed_waits) == [1, 5, 10]  # recorded for the second surrogate only
    assert gym.make(REAL, **SMALL[REAL]).unwrapped.fixed_waits == {}  # other settings
    own = {2: np.full(21, 0.5)}
    env.fixed_waits = own
    assert env.fixed_waits is own


def test_recordings_of_other_schedules_are_no_fixed_waits():
    assert list(fixed_waits.of_recordings(waits(seeds=(0, 1)))) == [
        wait for wait in fixed_waits.shown_waits(TICKS) if any(one.schedule == f"wait {wait}" for one in waits())
    ]
    assert fixed_waits.of_recordings(with_replay_and_growth()) == {}
