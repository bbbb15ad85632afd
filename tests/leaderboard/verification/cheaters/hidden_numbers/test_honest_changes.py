"""Honest changes of a predictor, such as a counter or a name, need no charge."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import alma_env

from .linear import Linear, arrays


def count_steps(model):
    model.steps = getattr(model, "steps", 0) + 1


def add_a_lambda(model):
    model.activation = lambda x: x


def rename(model):
    model.name = "tick 7"


def change_the_temperature(model):
    model.register_buffer("temperature", torch.tensor(2.0))


@pytest.mark.parametrize("change", [count_steps, add_a_lambda, rename])
def test_small_changes_need_no_charge(env, change):
    model = Linear()
    env.reset(seed=0, options={"predictor": model})
    for _ in range(3):
        change(model)
        env.step(model)


@pytest.mark.parametrize("change", [count_steps, add_a_lambda, rename, change_the_temperature])
def test_small_changes_are_accepted_after_training(env, change):
    model = Linear()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    for _ in range(3):
        with env.meter:
            x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
            nn.functional.cross_entropy(model(x), y).backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        change(model)
        observation, *_ = env.step(model)


def test_a_known_member_can_be_added_without_a_charge(env):
    first = Linear()
    env.reset(seed=0, options={"predictor": alma_env.Ensemble([first])})
    env.step(alma_env.Ensemble([first, first]))
    assert env.ledger[1].comp == 0


EPISODE: list[object] = []


class WithAMethodThatTrains(Linear):
    def fit(self, x, y):
        for env in EPISODE[:1]:
            with env.meter:
                nn.functional.cross_entropy(self(x), y).backward()
                torch.optim.SGD(self.parameters(), lr=0.1).step()


def test_a_method_that_trains_may_read_anything(env):
    model = WithAMethodThatTrains()
    EPISODE[:] = [env, arrays(0)]
    observation, _ = env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].buffers == 0
    model.fit(*(torch.from_numpy(observation["train"][name]) for name in ("x", "y")))
    env.step(model)


def test_a_module_may_keep_many_constants_and_a_counter(env):
    model = Linear()
    model.names = [f"class {n}" for n in range(100)]
    model.sizes = list(range(200))
    env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].buffers == 200
    count_steps(model)
    env.step(model)
