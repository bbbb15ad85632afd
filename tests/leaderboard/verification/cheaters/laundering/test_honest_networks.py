"""Honest networks that are copied, grown, parametrized and built in parts are accepted."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader, Dataset

import alma_env

from .linear import CLASSES, FEATURES, fit, network, tensors


def copied_before_its_first_pass(env, model, observation):
    second = network()
    with env.meter:
        third = copy.deepcopy(second)
        fit(third, observation)
    return third


def averaged_over_steps(env, model, observation):
    second = network()
    average = copy.deepcopy(second)
    with env.meter:
        fit(second, observation)
        for mean, new in zip(average.parameters(), second.parameters(), strict=True):
            mean.data.mul_(0.9).add_(new.data, alpha=0.1)
    return average


def averaged_from_its_initial_weights(env, model, observation):
    second = network()
    with env.meter:
        average = {name: one.data.clone() for name, one in second.named_parameters()}
        fit(second, observation)
        for name, one in second.named_parameters():
            one.data.copy_(average[name].mul_(0.5).add_(one.data, alpha=0.5))
    return second


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


def parametrized(env, model, observation):
    second = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES))
    with env.meter:
        parametrize.register_parametrization(second[0], "weight", Symmetric())
        parametrizations.weight_norm(second[1])
        fit(second, observation)
    return second


def with_a_memory_not_written_yet(env, model, observation):
    with env.meter:
        second = network()
        second.register_buffer("memory", torch.empty(100, 8))
        second.register_buffer("sums", torch.empty(100))
        fit(second, observation)
        second.sums.add_(1)
        assert not second.memory.sum()  # it is read
    return second


def grown_by_a_resize(env, model, observation):
    with env.meter:
        second = nn.Sequential(nn.Linear(FEATURES, 20), nn.ReLU(), nn.Linear(20, CLASSES))
        fit(second, observation)
        for one in second[0].parameters():
            one.data = one.data.resize_(24, *one.shape[1:])
            nn.init.normal_(one.data[20:])
        second[2].weight = nn.Parameter(torch.cat([second[2].weight, torch.zeros(CLASSES, 4)], 1))
        fit(second, observation)
    return second


def with_statistics_of_an_inference(env, model, observation):
    x, _ = tensors(observation)
    second = nn.Sequential(nn.Linear(FEATURES, 20), nn.BatchNorm1d(20), nn.Linear(20, CLASSES))
    with env.meter:
        with torch.inference_mode():
            second(x)
        fit(second, observation)
    return second


def restored_at_once(env, model, observation):
    """One of the layers is frozen."""
    model.requires_grad_(False)
    second = nn.Sequential(model[0], nn.Linear(CLASSES, CLASSES))
    with env.meter:
        fit(second, observation)
        best = [one.detach().clone() for one in second.parameters()]
        fit(second, observation)
        torch._foreach_copy_([one.data for one in second.parameters()], best)
    return second


class Examples(Dataset):
    def __init__(self, observation):
        self.part = observation["train"]

    def __len__(self):
        return len(self.part["x"])

    def __getitem__(self, row):
        return torch.tensor(self.part["x"][row]), torch.tensor(self.part["y"][row])


def on_collated_examples(env, model, observation):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with env.meter:
        for x, y in DataLoader(Examples(observation), batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


@pytest.mark.parametrize(
    "learner",
    [
        copied_before_its_first_pass,
        averaged_over_steps,
        averaged_from_its_initial_weights,
        parametrized,
        with_a_memory_not_written_yet,
        grown_by_a_resize,
        with_statistics_of_an_inference,
        restored_at_once,
        on_collated_examples,
    ],
)
def test_honest_networks_are_accepted(started, learner):
    env, model, observation = started
    predictor = learner(env, model, observation)
    env.step(predictor)
    assert env.ledger[-1].digest


def with_switches(values):
    made = network()
    for number, value in enumerate(values):
        made.register_buffer(f"enabled_{number}", torch.tensor(value))
    return made


def test_equal_switches_of_many_layers_are_one_number(started):
    env, _, observation = started
    equal, different = with_switches([3.0] * 20), with_switches([3.0 + number for number in range(20)])
    with env.meter:
        fit(equal, observation)
        fit(different, observation)
    with pytest.raises(alma_env.UnmeteredTrainingError, match="buffer 'enabled_16'"):
        env.step(different)
    env.step(equal)
    assert env.ledger[-1].digest


def test_the_places_of_a_sparse_tensor_without_values_remain():
    dense = torch.eye(4)
    env = alma_env.make("Digits-ALMA-v0")
    with env.meter:
        made = torch.empty_like(dense.to_sparse_csr())
        made.values().copy_(torch.arange(4.0))
        result = made @ torch.ones(4, 1)
    np.testing.assert_array_equal(result.ravel(), np.arange(4))
