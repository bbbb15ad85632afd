"""Answers: when a predictor runs, what it costs, and in which modes of PyTorch."""

from __future__ import annotations

import copy
import functools
import logging
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import Ensemble

from ..predictors import train
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


SIGN = {"sign": 1.0}


class Signed(nn.Module):
    """A predictor that reads a global number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(x.flatten(1).float() / 16) * SIGN["sign"]


def test_a_few_numbers_in_a_global_variable_are_content(env, monkeypatch):
    model = Signed()
    env.reset(seed=0, options={"predictor": model})
    monkeypatch.setitem(SIGN, "sign", -1.0)
    env.step(model)
    other = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    other.reset(seed=0, options={"predictor": model})
    assert env.ledger[1].error == other.ledger[0].error != env.ledger[0].error


class Choosing(nn.Module):
    """A predictor that runs a second layer on some batches, and reads the numbers that decide it as Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 10), nn.Linear(64, 10)
        self.register_buffer("threshold", torch.tensor(math.inf))

    def forward(self, x):
        x = x.flatten(1).float() / 16
        logits = self.first(x)
        return logits + self.second(x) if logits.mean().tolist() > self.threshold.tolist() else logits


def test_all_batches_are_counted_if_values_are_read_without_an_operation():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=100)
    model = Choosing()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    batches = torch.tensor(env.data.test_x).split(100)
    means = [model.first(batch.flatten(1).float() / 16).mean().item() for batch in batches]
    if means[0] == max(means):  # the first batch costs the least
        model.first.weight.data.neg_(), model.first.bias.data.neg_()
        means = [-mean for mean in means]
    env.reset(seed=0, options={"predictor": model})
    with env.meter:
        model.threshold = torch.tensor(means[0] + 1e-6)
        model(torch.from_numpy(observation["train"]["x"]))
    env.step(model)
    above = sum(len(batch) for batch, mean in zip(batches, means, strict=True) if mean > means[0] + 1e-6)
    assert env.ledger[1].inference_flops == pytest.approx(1280 * (1 + above / len(env.data.test_x)))


class Recurrent(nn.Module):
    """A predictor that reads an image row by row."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rows, self.classes = kind(8, 4, batch_first=True), nn.Linear(4, 10)

    def forward(self, x):
        return self.classes(self.rows(x.flatten(1, 2).float() / 16)[0][:, -1])


def with_logger() -> nn.Module:
    model = Counting()
    model.log = logging.getLogger("alma_env.test_answers")
    return model


@pytest.mark.parametrize(
    "make",
    [*(functools.partial(Recurrent, kind) for kind in (nn.LSTM, nn.GRU, nn.RNN)), with_logger],
    ids=["LSTM", "GRU", "RNN", "logger"],
)
def test_a_module_that_did_not_change_is_accepted_at_a_waiting_tick(env, make):
    model = make()
    observation, _ = env.reset(seed=0)
    with env.meter:
        train(model, observation)
    env.step(model)
    before = env.ledger[1]
    for number in range(100):
        logging.getLogger(f"alma_env.test_answers.other{number}")
    env.step(model)
    assert (env.ledger[2].error, env.ledger[2].buffers) == (before.error, before.buffers)
    assert before.buffers == 0


def test_a_parameter_of_a_recurrent_layer_is_content(env):
    model = Recurrent(nn.GRU)
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation, steps=50)
    env.step(model)
    assert env.ledger[1].error != env.ledger[0].error


def compiled_part() -> nn.Module:
    return nn.Sequential(nn.Flatten(), torch.compile(Scaled(), backend="eager"))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(x.float().flatten(1) / 16)


@pytest.mark.parametrize(
    "make",
    [compiled_part, lambda: Ensemble([torch.compile(Scaled(), backend="eager") for _ in range(2)])],
    ids=["part", "members"],
)
def test_compiled_parts_are_those_that_they_wrap(env, make):
    model = make()
    observation, _ = env.reset(seed=0)
    with env.meter:
        train(model, observation)
    env.step(model)
    env.step(model)
    members = 2 if isinstance(model, Ensemble) else 1
    assert [(row.parameters, row.buffers) for row in list(env.ledger)[1:]] == [(650 * members, 0)] * 2
    assert env.ledger[2].error == env.ledger[1].error
    assert any("OptimizedModule" in type(part).__name__ for part in model.modules())  # the learner's stays compiled
