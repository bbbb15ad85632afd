"""Environment and learner do not disturb each other."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env.scoring.evaluation import freeze

from ..predictors import Returning, train
from .predictors import TICKS, Constant, Noisy


class ReusesItsOutput(nn.Module):
    """A predictor that writes all answers to the same memory."""

    def __init__(self, inner, batch_size):
        super().__init__()
        self.inner = inner
        self.out = torch.zeros(batch_size, 10)

    def forward(self, x):
        out = self.out[: len(x)]
        out.copy_(self.inner(x))
        return out


def test_scoring_does_not_change_the_learners_module(env):
    model = Noisy().train()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    env.step(model)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_predictors_are_scored_in_eval_mode(env):
    model = Noisy().train()
    env.reset(seed=0, options={"predictor": model})
    x = torch.tensor(env.data.test_x)
    wrong = (model.eval()(x).argmax(1) != torch.tensor(env.data.test_y)).float().mean()
    assert env.ledger[0].error == pytest.approx(wrong.item(), abs=1e-7)


def test_later_in_place_changes_do_not_affect_the_deployed_predictor(env):
    model = Constant(3)
    env.reset(seed=0, options={"predictor": model})
    with torch.no_grad():
        model.logits.zero_()
    _, reward, *_ = env.step(None)
    assert -reward == np.mean(env.data.test_y != 3)


def test_a_predictor_gets_a_copy_of_each_batch_and_of_nothing_else():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=50)
    batches = []

    def answer(x):
        batches.append(x)
        return torch.zeros(len(x), 10)

    env.reset(seed=0, options={"predictor": Returning(answer)})
    np.testing.assert_array_equal(torch.cat(batches).numpy(), env.data.test_x)
    test_memory = torch.tensor(env.data.test_x)
    for batch in batches:
        assert batch.untyped_storage().nbytes() == batch.numel()
        batch.zero_()
    np.testing.assert_array_equal(env.data.test_x, test_memory.numpy())


def test_the_environment_shares_nothing_with_the_predictor_also_no_empty_registry():
    model = Noisy()
    frozen = freeze(model)
    for module, copied in zip(model.modules(), frozen.modules(), strict=True):
        assert vars(module).keys() == vars(copied).keys()
        for name, value in vars(module).items():
            assert type(value) is type(vars(copied)[name]), name
            assert value is not vars(copied)[name] or isinstance(value, int | float | None), name


def test_writing_to_an_observation_does_not_change_the_stream(env):
    observation, _ = env.reset(seed=0)
    kept = copy.deepcopy(observation)
    observation["train"]["x"][:] = 0
    again, _ = env.reset(seed=0)
    np.testing.assert_array_equal(again["train"]["x"], kept["train"]["x"])


def _python_numbers(n):
    return torch.tensor([[random.random() for _ in range(10)] for _ in range(n)])


@pytest.mark.parametrize(
    "numbers",
    [lambda n: torch.rand(n, 10), lambda n: torch.from_numpy(np.random.rand(n, 10)).float(), _python_numbers],  # noqa: NPY002
    ids=["torch", "numpy", "python"],
)
def test_a_predictor_with_random_numbers_repeats_its_answers(env, numbers):
    model = Returning(lambda x: numbers(len(x)))
    errors = []
    for seed in (1, 2):
        torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)  # noqa: NPY002
        expected = torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002
        torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)  # noqa: NPY002
        env.reset(seed=0, options={"predictor": model})
        errors.append(env.ledger[0].error)
        assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected  # noqa: NPY002
    assert errors[0] == errors[1]


def test_autocast_around_the_environment_does_not_change_an_answer(env):
    torch.manual_seed(0)
    model = nn.Sequential(Returning(lambda x: x.float()), nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 10))
    env.reset(seed=0, options={"predictor": model})
    error = env.ledger[0].error
    with torch.autocast("cpu", torch.bfloat16):
        env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].error == error


def test_a_predictor_may_reuse_its_output():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=50)
    inner = env.action_space.sample()
    env.reset(seed=0, options={"predictor": inner})
    error = env.ledger[0].error
    env.reset(seed=0, options={"predictor": ReusesItsOutput(inner, 50)})
    assert env.ledger[0].error == error
