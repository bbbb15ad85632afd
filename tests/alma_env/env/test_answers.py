"""Answers: when a predictor runs, what it costs, and in which modes of PyTorch."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import alma_env

from .predictors import TICKS

CALLS = {"count": 0}


class Counting(nn.Module):
    """A linear predictor that counts its runs in a global variable."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.temperature = temperature

    def forward(self, x):
        CALLS["count"] += 1
        return self.linear(x.flatten(1).float() / 16) / self.temperature


def test_a_predictor_with_the_same_content_is_not_run_again(env):
    model = Counting()
    env.reset(seed=0, options={"predictor": model})
    CALLS["count"] = 0
    for same in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.train(), model.eval()):
        _, reward, *_ = env.step(same)
        assert -reward == env.ledger[0].error
    assert CALLS["count"] == 0


@pytest.mark.parametrize("change", ["attribute", "buffer", "hidden tensor", "forward", "submodule"])
def test_everything_that_the_forward_reads_is_content(env, change):
    model = Counting()
    model.register_buffer("shift", torch.zeros(1), persistent=False)
    model.plain = torch.zeros(1)
    observation, _ = env.reset(seed=0, options={"predictor": model})
    CALLS["count"] = 0
    with env.meter:
        model(torch.from_numpy(observation["train"]["x"]))
    CALLS["count"] = 0
    if change == "attribute":
        model.temperature = 2.0
    elif change == "buffer":
        model.shift += 1
    elif change == "hidden tensor":
        model.plain += 1
    elif change == "forward":
        original = model.forward
        model.forward = lambda x: -original(x)
    else:
        model.linear = nn.Sequential(model.linear, nn.ReLU())
    env.step(model)
    assert CALLS["count"] > 0


class Routed(nn.Module):
    """A predictor that runs its layer twice for images whose first row is darker than a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("threshold", torch.tensor(-1.0))

    def forward(self, x):
        x = x.flatten(1).float()
        logits = self.layer(x)
        chosen = x[:, :8].sum(1) < self.threshold
        logits[chosen] = logits[chosen] + self.layer(x[chosen])
        return logits


def test_inference_flops_are_the_mean_over_the_test_inputs_also_if_they_depend_on_the_data(env):
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=100)
    model = Routed()
    env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].inference_flops == 2 * 640
    first_rows = env.data.test_x.reshape(-1, 64)[:, :8].astype(np.float32).sum(1)
    for tick, threshold in enumerate((20.0, 25.0), start=1):
        with env.meter:
            model.threshold.fill_(threshold)
            model(torch.from_numpy(env.observation()["train"]["x"]))
        env.step(model)
        share = (first_rows < threshold).mean()
        assert 0 < share < 1
        assert env.ledger[tick].inference_flops == pytest.approx(2 * 640 * (1 + share))


def test_the_validation_error_is_available_in_inference_mode(env):
    env.reset(seed=0)
    model = env.action_space.sample()
    error = env.validation_error(model)
    with torch.inference_mode():
        assert env.validation_error(model) == error


class Branching(nn.Module):
    """A predictor whose number of layer runs, and so its cost, depends on the mean pixel."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x):
        x = x.flatten(1).float()
        for _ in range(1 + int((x.mean() * self.scale).item())):
            out = self.linear(x)
        return out


def test_a_predictor_whose_cost_depends_on_the_data_is_counted_on_all_batches(env):
    unequal, steady = Branching(7.0), Branching(0.0)  # with equal structure and different buffers
    env.evaluation_batch_size = 40
    env.reset(seed=0, options={"predictor": unequal})
    expected = env.ledger[0].inference_flops
    means = [env.data.test_x[start : start + 40].mean() for start in range(0, len(env.data.test_y), 40)]
    sizes = [len(env.data.test_y[start : start + 40]) for start in range(0, len(env.data.test_y), 40)]
    times = [1 + int(np.float32(mean) * np.float32(7)) for mean in means]
    assert len(set(times)) > 1
    assert expected == pytest.approx(2 * 640 * np.average(times, weights=sizes))
    env.reset(seed=0, options={"predictor": steady})
    with env.meter:
        unequal.linear(torch.zeros(1, 64))
        for parameter in unequal.parameters():
            parameter.data.mul_(1.0)
    env.step(unequal)
    assert env.ledger[1].inference_flops == expected


def test_reset_works_in_inference_mode(env):
    model = env.action_space.sample()
    env.reset(seed=0, options={"predictor": model})
    error = env.ledger[0].error
    with torch.inference_mode():
        env.reset(seed=0, options={"predictor": copy.deepcopy(model)})
    assert env.ledger[0].error == error


def scaled_class(factor):
    class Scaled(nn.Module):
        scale = factor

        def forward(self, x):
            return x.flatten(1)[:, :10].float() * self.scale

    return Scaled


def test_a_changed_class_makes_another_predictor(env):
    kind, other = scaled_class(1.0), scaled_class(-1.0)
    env.reset(seed=0, options={"predictor": kind()})
    env.meter.declare(1, reason="a change of a class cannot be metered")
    env.step(other())  # its class has the same name
    assert env.ledger[1].error != env.ledger[0].error
    other.scale = 1.0
    env.meter.declare(1, reason="a change of a class cannot be metered")
    env.step(other())
    assert env.ledger[2].error == env.ledger[0].error
