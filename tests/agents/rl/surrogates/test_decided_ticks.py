"""Episodes of a surrogate by decisions instead of choices: one tick after another, or many ticks of waiting at once."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv

from ..synthetic import TICKS


def test_decisions_can_be_lists_and_need_an_episode(model):
    of_lists, of_choices = (DecisionSurrogateVectorEnv(2, models=[model]) for _ in range(2))
    decisions = [True, False], [1, 1], [False, False], [0, 0]
    with pytest.raises(RuntimeError, match="there is no episode; call reset"):
        of_lists.decide(*decisions)
    of_lists.reset(seed=0)
    of_choices.reset(seed=0)
    assert np.array_equal(of_lists.decide(*decisions)[0], of_choices.step([1, 0])[0])


def test_decided_sizes_can_be_floats_and_must_be_whole(model):
    of_floats, of_numbers = (DecisionSurrogateVectorEnv(2, models=[model]) for _ in range(2))
    of_floats.reset(seed=0)
    of_numbers.reset(seed=0)
    with pytest.raises(ValueError, match=r"sizes=0.5, grow=0.0 of episode 1: a training at tick 1 with 1 mega-batches"):
        of_floats.decide([True, True], [1.0, 0.5], [False, False], [0.0, 0.0])
    of_floats.decide([True, False], [1.0, np.nan], [False, False], [0.0, 0.0])
    of_numbers.decide([True, False], [1, 1], [False, False], [0, 0])
    again = [True, True], [1, 2], [True, False], [0, 0]
    assert np.array_equal(of_floats.decide(*again)[0], of_numbers.decide(*again)[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {1: [1, 0]},
            "sizes=0, grow=0 of episode 1: a training at tick 1 with 1 mega-batches gathered must be on 1",
        ),
        ({1: [2, 1]}, "sizes=2, grow=0 of episode 0"),
        ({3: [0, -1]}, "sizes=1, grow=-1 of episode 1"),
        ({0: True}, r"train of shape \(\): must be one value for each of 2 episodes"),
    ],
)
def test_impossible_decisions_are_refused(model, changed, message):
    env = DecisionSurrogateVectorEnv(2, models=[model])
    env.reset(seed=0)
    decisions = {0: [True, True], 1: [1, 1], 2: [False, False], 3: [0, 0]} | changed
    with pytest.raises(ValueError, match=message):
        env.decide(*decisions.values())


def test_waiting_at_once_is_many_steps_of_waiting(model):
    at_once, by_steps = (DecisionSurrogateVectorEnv(3, models=[model], pass_price=10.0) for _ in range(2))
    for env in (at_once, by_steps):
        env.reset(seed=4)
    none = np.zeros(3, int)
    for ticks, trains in ((4, [1, 1, 0]), (0, [0, 1, 1]), (6, [1, 0, 1])):
        sums = at_once.wait(ticks)
        expected = sum((by_steps.step(none)[-1]["vector_reward"] for _ in range(ticks)), np.zeros((3, 3)))
        assert sums == pytest.approx(expected)
        (seen, rewards, *_, infos), (other, others, *_, more) = (env.step(trains) for env in (at_once, by_steps))
        assert np.array_equal(seen, other)
        assert np.array_equal(rewards, others)
        assert infos["cer"] == pytest.approx(more["cer"])


def test_no_episode_ends_or_keeps_its_course_while_it_waits_at_once(model):
    env = DecisionSurrogateVectorEnv(2, models=[model])
    with pytest.raises(RuntimeError, match="reset"):
        env.wait(1)
    env.reset(seed=0)
    for ticks in (-1, TICKS, 1.5, np.nan):
        message = f"ticks={ticks}: must be a whole number from 0 to {TICKS - 1}, so that no episode ends"
        with pytest.raises(ValueError, match=message):
            env.wait(ticks)
    env.wait(TICKS - 1)
    assert "final_info" in env.step([1, 0])[-1]
    drawn = DecisionSurrogateVectorEnv(2, models=[model])
    drawn.keep_course()
    drawn.reset(seed=0)
    with pytest.raises(RuntimeError, match="it keeps no course"):
        drawn.wait(1)
