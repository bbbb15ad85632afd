"""Gradients and states of optimizers that functions of `count_once` wrote are known in the rest of the episode."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import alma_env
from alma_env import UnmeteredTrainingError, meter

OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
}


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))

    def forward(self, x):
        return self.body(x.float() / 16)


@meter.count_once
def gradients(model, x, y):
    nn.functional.cross_entropy(model(x), y).backward()


@meter.count_once
def step(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


@meter.count_once
def clipped_step(model, optimizer, x, y):
    optimizer.zero_grad()
    gradients(model, x, y)
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)
    optimizer.step()


def gradients_inside(model, optimizer, x, y, *, none):
    gradients(model, x, y)
    clipped_step(model, optimizer, x, y)


def gradients_then_step(model, optimizer, x, y, *, none):
    optimizer.zero_grad(set_to_none=none)
    gradients(model, x, y)
    optimizer.step()


def steps_then_one_that_is_seen(model, optimizer, x, y, *, none):
    step(model, optimizer, x, y)
    step(model, optimizer, x, y)
    optimizer.zero_grad(set_to_none=none)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("train", [gradients_then_step, steps_then_one_that_is_seen, gradients_inside])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_that_are_counted_once_and_steps_that_are_seen_train_one_predictor(name, train, none):
    env, model = alma_env.make("Digits-ALMA-v0", ticks=4), Digits()
    optimizer = OPTIMIZERS[name](model)
    observation, _ = env.reset(seed=0, options={"predictor": model})
    while not env.done:
        with env.meter:
            x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
            for _ in range(3):
                train(model, optimizer, x, y, none=none)
        observation, *_ = env.step(model)
    assert all(row.comp > 0 for row in itertools.islice(env.ledger, 1, None))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_of_numbers_from_outside_are_foreign(name):
    env, model = alma_env.make("Digits-ALMA-v0", ticks=4), Digits()
    optimizer = OPTIMIZERS[name](model)
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
        gradients(model, x, y)
        optimizer.zero_grad()
        other = torch.from_numpy(255 - observation["train"]["x"].copy() ** 2)  # no mega-batch, in no scale
        gradients(model, other, y)
        optimizer.step()
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
