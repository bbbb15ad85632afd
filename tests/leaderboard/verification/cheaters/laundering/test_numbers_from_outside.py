"""Numbers from outside of the meter's block, written into the predictor by operations inside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from alma_env import UnmeteredTrainingError

from ..gallery import attack, each
from .linear import REFUSED, charge, fit, solution


def as_integers(weights):
    return torch.from_numpy(weights.view(np.int32)).view(torch.float32)


def as_scaled_integers(weights):
    return torch.from_numpy((weights * 1000).astype(np.int64)).float() / 1000


def as_a_look_up(weights):
    table = torch.arange(4001) / 1000 - 2
    return table[torch.from_numpy(np.clip(weights * 1000 + 2000, 0, 4000).astype(np.int64))]


def as_bytes(weights):
    return torch.frombuffer(bytearray(weights.tobytes()), dtype=torch.float32).view(weights.shape)


def as_a_list(weights):
    return torch.tensor(weights.tolist())


def as_numbers_one_by_one(weights):
    made = torch.zeros(weights.shape)
    for row in range(len(weights)):
        for column in range(weights.shape[1]):
            made[row, column] = float(weights[row, column])
    return made


def as_stacked_numbers(weights):
    return torch.stack([torch.tensor(number) for number in weights.ravel().tolist()]).view(weights.shape)


def through_memory_of_pytorch(weights):
    made = torch.zeros(weights.shape)
    made.numpy()[...] = weights
    return made


def through_empty_memory(weights):
    made = torch.empty(weights.shape)
    made.numpy()[...] = weights
    return made + 0


def as_a_sparse_tensor(weights):
    return torch.from_numpy(weights).to_sparse().to_dense()


def as_booleans(weights):
    bits = np.unpackbits(weights.view(np.uint8).reshape(-1, 1), axis=1, bitorder="little").astype(bool)
    places = 2 ** torch.arange(8)
    return (torch.from_numpy(bits) * places).sum(1).to(torch.uint8).view(torch.float32).view(weights.shape)


def as_data_times_weights(weights):
    x = np.ones((len(weights), 1), np.float32)
    return torch.from_numpy(x * weights)


def in_a_product_with_one(weights):
    return torch.eye(len(weights)) @ torch.from_numpy(weights)


def by_dlpack(weights):
    return torch.from_dlpack(weights.copy())


ROUTES = [
    as_integers,
    as_scaled_integers,
    as_a_look_up,
    as_bytes,
    as_a_list,
    as_numbers_one_by_one,
    as_stacked_numbers,
    through_memory_of_pytorch,
    through_empty_memory,
    as_a_sparse_tensor,
    as_booleans,
    as_data_times_weights,
    in_a_product_with_one,
    by_dlpack,
]


@pytest.mark.parametrize("route", each("brings weights into the block", ROUTES, REFUSED))
@pytest.mark.parametrize("add", [False, True])
def test_numbers_from_outside_stay_foreign(started, route, add):
    env, model, observation = started
    weights = solution(observation)
    with env.meter, torch.no_grad():
        charge()
        made = route(weights)
        if add:
            model[0].weight.mul_(0).add_(made)
        else:
            model[0].weight.copy_(made)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("brings weights into the block in a tensor that only its own library can read", REFUSED)
def test_an_opaque_tensor_from_outside_is_foreign(started):
    env, model, observation = started
    opaque = torch.from_numpy(solution(observation)).to_mkldnn()
    with env.meter, torch.no_grad():
        charge()
        model[0].weight.copy_(opaque.to_dense())
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("puts a network's parameters into the memory of a NumPy array", REFUSED)
def test_parameters_in_the_memory_of_numpy_are_not_an_initialisation(started):
    env, model, observation = started
    model[0].weight = nn.Parameter(torch.from_numpy(solution(observation)))
    with env.meter:
        fit(model, observation, 1)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights into the labels of a mega-batch", REFUSED)
def test_labels_overwritten_with_weights_are_not_data(started):
    env, model, observation = started
    weights = solution(observation)
    observation["train"]["y"][: weights.size] = (weights.ravel() * 1000).astype(np.int64)
    with env.meter, torch.no_grad():
        charge()
        numbers = torch.from_numpy(observation["train"]["y"])[: weights.size].float() / 1000
        model[0].weight.mul_(0).add_(numbers.view(weights.shape))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
