"""The signature of a counted call: what of the arguments decides whether the call is counted anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import alma_env
from alma_env.metering import Meter, count, count_once

from .counted_work import batch, mlp


@pytest.mark.parametrize(
    "change",
    [
        lambda net, x: (net.eval(), x),
        lambda net, x: (net[0].requires_grad_(False), x),
        lambda net, x: (net, x[:3]),
        lambda net, x: (net, x.double()),
        lambda net, x: (net, x.clone().requires_grad_()),
        lambda net, x: (net.append(nn.Linear(3, 3)), x),
    ],
)
def test_a_new_signature_is_counted_again(change: Callable[[Any, Tensor], tuple[Any, Tensor]]) -> None:
    runs: list[int] = []

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        runs.append(1)
        return net(x.float()) if x.shape[-1] == 6 else x

    net, (x, _) = mlp(), batch()
    once = count_once(forward)
    with Meter():
        once(net, x)
        assert len(runs) == 2, "one run on copies, one on the arguments"
        once(net, x)
        assert len(runs) == 3
        _, changed = change(net, x)
        once(net, changed)
        assert len(runs) == 5


def test_the_layout_of_a_tensor_is_part_of_the_signature() -> None:
    product, dense = count_once(torch.mm), torch.rand(8, 8)
    for first in (torch.eye(8).to_sparse(), dense.to_sparse(), dense):
        assert count(product, first, dense).total == count(torch.mm, first, dense).total


def test_arguments_must_be_copyable_and_comparable() -> None:
    computed = torch.ones(4, 4, requires_grad=True) * 2
    with Meter():
        with pytest.raises(RuntimeError, match="detach computed tensors"):
            count_once(torch.relu)(computed)
        with pytest.raises(TypeError, match="cannot be compared"):
            count_once(len)({1, 2})


def test_the_signature_includes_dataclass_attributes_of_modules() -> None:
    @dataclasses.dataclass
    class Config:
        layers: int = 1

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Config()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(self.config.layers):
                x = self.layer(x)
            return x

    net, x, meter, costs = Deep(), torch.ones(4, 8), Meter(), []
    answer = count_once(lambda net, x: net(x))
    for layers in (1, 1, 8):
        net.config.layers = layers
        with meter:
            answer(net, x)
        costs.append(meter.take().total)
    assert costs == [2 * 4 * 64 * layers for layers in (1, 1, 8)]


class Chosen(nn.Module):
    """A module that runs the layers which its attributes choose."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self._depth = 1
        self.options = {"depth": 1, "of": {"more": 1}}
        self.active = {0}
        self.register_buffer("wide", torch.eye(8))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self._depth + self.options["depth"] + self.options["of"]["more"] + len(self.active)):
            x = self.layer(x)
        if self.wide.dtype == torch.float64:
            x = (x.double() @ self.wide).float()
        return x


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "_depth", 3),
        lambda net: net.options.update(depth=3),
        lambda net: net.options["of"].update(more=3),
        lambda net: net.active.add(1),
        lambda net: net.register_forward_pre_hook(lambda module, inputs: (inputs[0] @ torch.ones(8, 8),)),
        lambda net: net.register_forward_hook(lambda module, inputs, out: out @ torch.ones(8, 8)),
        lambda net: setattr(net, "wide", net.wide.double()),
    ],
)
def test_the_signature_includes_what_chooses_the_work_of_a_module(change: Callable[[Chosen], object]) -> None:
    net, x, meter = Chosen(), torch.ones(4, 8), Meter()
    answer = count_once(lambda net, x: net(x))
    with meter:
        answer(net, x)
    before = meter.take().total
    change(net)
    with meter:
        answer(net, x)
    assert meter.take().total == alma_env.meter.count(lambda: net(x)).total > before


class OwnRecurrent(nn.LSTM):
    """A layer whose private attributes are described, because the class is no part of PyTorch."""


def test_a_recurrent_layer_of_ones_own_has_one_signature() -> None:
    """PyTorch keeps weak references to the weights in private lists; those of tensors cannot be compared."""
    net, x, meter, costs = OwnRecurrent(8, 8), torch.ones(3, 2, 8), Meter(), []
    answer = count_once(lambda net, x: net(x)[0].sum())
    for _ in range(3):
        with meter:
            answer(net, x)
        costs.append(meter.take().total)
    assert costs[0] == costs[1] == costs[2] > 0


class Repeating(nn.Module):
    """A module whose cost depends on an attribute, not on a shape."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.times = times
        self.kinds = ["linear", {"not": "hashable"}, torch.zeros(2)]

    def forward(self, x):
        for _ in range(self.times):
            x = self.linear(x)
        return x


def test_modules_of_equal_shapes_and_different_cost_have_different_signatures():
    @count_once
    def forward(module, x):
        module(x)

    meter = Meter()
    images = torch.zeros(2, 3, 16, 16)
    for stride in (1, 2, 4, 1):
        with meter:
            forward(nn.Conv2d(3, 8, 3, stride=stride, padding=1), images)
        assert meter.take().total == 2 * 2 * 8 * 27 * (16 // stride) ** 2
    for times in (1, 5, 1):
        with meter:
            forward(Repeating(times), torch.zeros(4, 8))
        assert meter.take().total == times * 2 * 4 * 8 * 8
