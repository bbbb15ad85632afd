"""The course of an episode: ticks, observations, rewards and budgets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import alma_env

from ..predictors import train
from .predictors import TICKS, Constant, Noisy


def test_an_episode_with_training_at_every_tick(env):
    model = Noisy()
    observation, info = env.reset(seed=0, options={"predictor": model})
    assert info["tick"] == 0
    rewards = []
    while True:
        with env.meter:
            train(model, observation)
        observation, reward, terminated, truncated, info = env.step(model)
        rewards.append(reward)
        assert type(reward) is float
        assert type(terminated) is bool
        assert type(truncated) is bool
        if terminated or truncated:
            break
    assert terminated
    assert not truncated
    score = env.ledger.score()
    assert [row.tick for row in env.ledger] == list(range(TICKS + 1))
    assert sum(rewards) == pytest.approx(-score.cer_from_1, abs=1e-12)
    assert score.final_error == -rewards[-1]
    assert score.mem == (TICKS + 1) * sum(p.numel() for p in model.parameters())
    assert env.ledger[1].buffers == 16 + 16 + 1
    assert all(row.comp > 0 for row in env.ledger.rows[1:])
    assert env.ledger[0].comp == 0


def test_the_error_is_that_on_the_hidden_test_set(env):
    _, info = env.reset(seed=0, options={"predictor": Constant(3)})
    assert info["error"] == np.mean(env.data.test_y != 3)


def test_without_a_predictor_tick_0_is_the_uniform_guess(env):
    _, info = env.reset(seed=0)
    assert info["error"] == 0.9
    assert env.ledger[0].parameters == 0
    _, reward, *_ = env.step(None)
    assert reward == -0.9


def test_the_observations_are_the_mega_batches_and_the_last_one_again(env):
    observation, _ = env.reset(seed=7)
    stream = alma_env.Stream(env.data, TICKS, seed=7)
    for tick in range(1, TICKS + 1):
        np.testing.assert_array_equal(observation["train"]["x"], stream.megabatch(tick)["train"]["x"])
        assert observation in env.observation_space
        observation, *_ = env.step(None)
    np.testing.assert_array_equal(observation["valid"]["y"], stream.megabatch(TICKS)["valid"]["y"])


def test_mega_batches_are_available_after_they_have_arrived(env):
    with pytest.raises(ValueError, match="no mega-batch has arrived yet"):
        env.megabatch(1)
    env.reset(seed=0)
    env.step(None)
    assert env.megabatch(2)["train"]["y"].tolist() == env.observation()["train"]["y"].tolist()
    with pytest.raises(ValueError, match="tick=3: mega-batches 1 to 2 have arrived"):
        env.megabatch(3)


def test_without_a_seed_the_environments_generator_draws_the_stream(env):
    env.reset(seed=3)
    drawn = [env.reset()[0]["train"]["y"].tolist() for _ in range(2)]
    env.reset(seed=3)
    assert [env.reset()[0]["train"]["y"].tolist() for _ in range(2)] == drawn
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("call", ["step", "step_after_end"])
def test_a_step_before_reset_or_after_the_end_is_refused(env, call):
    if call == "step_after_end":
        env.reset(seed=0)
        for _ in range(TICKS):
            env.step(None)
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.step(None)


def test_unknown_options_and_actions_are_refused(env):
    with pytest.raises(ValueError, match="the only option of reset is 'predictor'"):
        env.reset(options={"predictr": Constant(1)})
    env.reset(seed=0)
    with pytest.raises(TypeError, match="must be a torch.nn.Module, or None"):
        env.step(3)


def test_consider_changes_nothing_and_commit_accepts_answers_to_the_next_tick_only(env):
    env.action_space.seed(0)  # their errors differ
    first, second = (env.action_space.sample() for _ in range(2))
    env.reset(seed=0, options={"predictor": first})
    before = env.state_dict()
    pending = env.consider(second)
    pending_reset = env.consider_reset(1, second)
    assert env.state_dict() == before
    _, reward, *_ = env.commit(pending)
    assert env.ledger[1].error == -reward == pending.answer.error != env.ledger[0].error
    with pytest.raises(RuntimeError, match="answer to tick 1 at tick 2: call consider"):
        env.commit(pending)
    env.begin(pending_reset)
    assert (env.tick, env.stream_seed, env.ledger[0].error) == (0, 1, -reward)


def test_one_tick_can_have_a_budget(env):
    env.reset(seed=0)
    for charge, over_budget in ((10, False), (11, True)):
        env.meter.declare(charge, reason="work")
        pending = env.consider(None, tick_budget=10)
        assert pending.over_budget is over_budget
        _, _, _, truncated, _ = env.commit(pending)
        assert truncated is over_budget
    assert [row.refused for row in env.ledger] == [False, False] + [True] * (TICKS - 1)


def test_breaking_the_flops_budget_keeps_the_deployed_predictor_and_ends_the_episode(env):
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, flops_budget=100)
    env.reset(seed=0, options={"predictor": Constant(3)})
    env.step(None)
    with env.meter:
        model = Constant(4)
        torch.ones(4, 4) @ torch.ones(4, 4)
        model.logits.data.mul_(1.0)
    _, reward, terminated, truncated, info = env.step(model)
    error = float(np.mean(env.data.test_y != 3))
    assert (terminated, truncated) == (False, True)
    assert reward == pytest.approx(-error * (TICKS - 1))
    assert info["tick"] == TICKS
    assert [row.error for row in env.ledger] == [error] * (TICKS + 1)
    assert [row.refused for row in env.ledger] == [False, False] + [True] * (TICKS - 1)
    assert env.ledger.comp == 128


def test_breaking_the_parameter_budget_ends_the_episode_in_the_same_way(env):
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, parameter_budget=10)
    env.reset(seed=0, options={"predictor": Constant(3)})
    sample = env.action_space.sample()
    _, _, terminated, truncated, _ = env.step(sample)
    assert (terminated, truncated) == (False, True)
    assert {row.parameters for row in env.ledger} == {10}
    with pytest.raises(ValueError, match="predictor with 640 parameters: .*parameter_budget=10"):
        env.reset(seed=0, options={"predictor": sample})


def test_a_refused_seed_does_not_change_the_episode():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, partition="continuum")
    env.reset(seed=1)
    state = env.state_dict()
    with pytest.raises(ValueError, match=str(2**33)):
        env.reset(seed=2**33)
    assert env.state_dict() == state
