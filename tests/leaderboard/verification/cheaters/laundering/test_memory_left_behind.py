"""Content that memory keeps: freed memory that PyTorch hands out again, and what lies beyond a tensor's new size."""

from __future__ import annotations

import warnings

import pytest
import torch

from alma_env import UnmeteredTrainingError

from ..gallery import each
from .linear import REFUSED, charge, solution

aten = torch.ops.aten


def in_a_larger_storage(tensor, like):
    return torch.as_strided(tensor, like.shape, (like.shape[1], 1))


def under_a_small_result(weights):
    made = torch.from_numpy(weights.ravel())
    torch.add(torch.ones(1), 1, out=made)
    return in_a_larger_storage(made, weights)


def under_an_empty_result(weights):
    made = torch.from_numpy(weights.ravel())
    torch.zeros(0, out=made)
    return made.resize_(weights.shape)


def under_an_empty_result_in_memory_of_pytorch(weights):
    made = torch.empty(weights.shape)
    made.numpy()[...] = weights
    torch.zeros(0, out=made)
    return made.resize_(weights.shape)


def by_a_resize_into_a_result(weights):
    made = torch.from_numpy(weights)
    return aten.resize.out(torch.zeros(weights.shape), weights.shape, out=made)


def by_a_resize_that_copies(weights):
    return aten.resize(torch.from_numpy(weights), weights.shape)


def by_the_storage_of_a_result(weights):
    made = torch.zeros(1)
    return aten.set.source_Tensor_out(torch.zeros(1), torch.from_numpy(weights), out=made)


ROUTES = [
    under_a_small_result,
    under_an_empty_result,
    under_an_empty_result_in_memory_of_pytorch,
    by_a_resize_into_a_result,
    by_a_resize_that_copies,
    by_the_storage_of_a_result,
]


@pytest.mark.parametrize("route", each("brings weights into the block in memory that a result leaves", ROUTES, REFUSED))
def test_what_lies_beyond_a_result_stays_foreign(started, route):
    env, model, observation = started
    weights = solution(observation)
    with env.meter, torch.no_grad(), warnings.catch_warnings(action="ignore"):  # a result gets another size
        charge()
        model[0].weight.copy_(route(weights))
    assert (model[0].weight.detach().numpy() == weights).mean() > 0.9
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


SIZE = 36  # bytes of a small block, which the allocator hands out again at once
NEW = {
    "empty": lambda: torch.empty(SIZE, dtype=torch.uint8),
    "empty_like": lambda: torch.empty_like(torch.zeros(SIZE, dtype=torch.uint8)),
    "empty_strided": lambda: torch.empty_strided((6, 6), (1, 6), dtype=torch.uint8),
    "new_empty": lambda: torch.zeros(1, dtype=torch.uint8).new_empty(SIZE),
    "new_empty_strided": lambda: torch.zeros(1, dtype=torch.uint8).new_empty_strided((6, 6), (6, 1)),
    "quantised": lambda: torch._empty_affine_quantized([SIZE], scale=1.0, zero_point=0, dtype=torch.quint8).int_repr(),
    "growth": lambda: torch.ones(1, dtype=torch.uint8).resize_(SIZE)[1:],
    "result": lambda: aten.empty_like.out(torch.zeros(SIZE), out=torch.ones(SIZE)),
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("new", NEW.values(), ids=NEW)
def test_memory_without_content_holds_nothing_that_an_earlier_user_left(started, new):
    env = started[0]
    with env.meter:
        for _ in range(20):
            left = torch.ones(SIZE, dtype=torch.uint8)
            del left
            assert not new().any()
