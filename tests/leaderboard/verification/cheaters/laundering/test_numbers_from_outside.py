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


def through_partly_written_empty_memory(weights):
    made = torch.empty(weights.shape)
    made.numpy()[...] = weights
    made[0, :1].fill_(0.0)
    return made


def under_a_view_with_overlaps(weights):
    made = torch.from_numpy(weights).ravel()
    made.as_strided((6, 6), (1, 1)).zero_()  # 36 elements in 11 places
    return made.view(weights.shape)


def as_running_statistics(weights):
    made, ones = torch.from_numpy(weights).ravel(), torch.ones(weights.size)
    out = {"out": torch.empty(2, weights.size), "save_mean": ones.clone(), "save_invstd": ones.clone()}
    torch.ops.aten.native_batch_norm.out(torch.zeros(2, weights.size), None, None, made, ones, True, 0.0, 1e-5, **out)
    return made.view(weights.shape)


def as_masked_numbers_one_by_one(weights):
    made, place = torch.zeros(weights.size), torch.arange(weights.size)
    for k, number in enumerate(weights.ravel().tolist()):
        made.masked_fill_(place == k, number)
    return made.view(weights.shape)


def as_indexed_pieces(weights):
    made, numbers = torch.zeros(weights.size), weights.ravel().tolist()
    for start in range(0, len(numbers), 12):
        made[torch.arange(start, start + 12)] = torch.tensor(numbers[start : start + 12])
    return made.view(weights.shape)


def in_carriers_of_a_few_numbers(weights):
    made, numbers = torch.zeros(weights.size + 32), weights.ravel().tolist()
    for start in range(0, len(numbers), 12):
        carrier = torch.zeros(32)
        carrier[:12] = torch.tensor(numbers[start : start + 12])
        made[start : start + 32] = carrier
    return made[: weights.size].view(weights.shape)


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
    through_partly_written_empty_memory,
    under_a_view_with_overlaps,
    as_running_statistics,
    as_masked_numbers_one_by_one,
    as_indexed_pieces,
    in_carriers_of_a_few_numbers,
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


@attack("hides weights in the rounding errors of rescaled data", REFUSED)
def test_weights_in_the_rounding_of_rescaled_data_are_foreign(started):
    env, model, observation = started
    x, weights = observation["train"]["x"], solution(observation)
    scaled, unit = x.astype(np.float64), 5e-5 * float(np.abs(x).max())
    scaled.ravel()[: weights.size] += weights.ravel() * unit
    with env.meter, torch.no_grad():
        charge()
        hidden = (torch.from_numpy(scaled) - torch.from_numpy(x)) / unit
        model[0].weight.copy_(hidden.ravel()[: weights.size].view(weights.shape))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
