"""Functions that are counted once, of tensors with hooks and of modules with a `forward` of their own."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from alma_env.metering import Charge, Meter, count, count_once

from .counted_work import mlp

WORK = torch.ones(4, 4)


def more_work(tensor: Tensor) -> None:
    WORK @ WORK


def gradients(net: nn.Module, x: Tensor) -> None:
    net(x).sum().backward()


def charge_of(once: Callable[..., object], *args: object) -> Charge:
    meter = Meter()
    with meter:
        once(*args)
    return meter.take()


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("counted_before", [True, False])
def test_the_work_of_hooks_on_tensors_is_charged_at_every_call(register: str, counted_before: bool) -> None:
    net, x, once = mlp(), torch.ones(4, 6), count_once(gradients)
    without = charge_of(gradients, net, x)
    if counted_before:
        assert charge_of(once, net, x) == without
    hook = getattr(net[0].weight, register)(more_work)
    full = charge_of(gradients, net, x)
    assert full.total == without.total + 2 * 4**3
    assert [charge_of(once, net, x) for _ in range(3)] == [full] * 3
    hook.remove()
    assert [charge_of(once, net, x) for _ in range(2)] == [without] * 2


def test_a_hook_on_an_argument_or_on_a_network_of_an_object_is_found() -> None:
    class Learner:
        def __init__(self) -> None:
            self.net = mlp()

        @count_once
        def train(self, x: Tensor) -> None:
            gradients(self.net, x)

    learner, x = Learner(), torch.ones(4, 6)
    without = charge_of(learner.train, x).total
    learner.net[0].bias.register_hook(more_work)
    assert [charge_of(learner.train, x).total - without for _ in range(2)] == [2 * 4**3] * 2
    doubled, leaf = count_once(lambda x: (2 * x).sum().backward()), torch.ones(3, requires_grad=True)
    assert charge_of(doubled, leaf).total == 0
    leaf.register_hook(more_work)
    assert charge_of(doubled, leaf).total == 2 * 4**3


def test_a_hook_that_varies_is_charged_what_each_call_costs() -> None:
    net, x, once, sizes = mlp(), torch.ones(4, 6), count_once(gradients), [1, 2, 3]
    without = charge_of(gradients, net, x).total
    remaining = iter(sizes)

    def grow(tensor: Tensor) -> None:
        size = next(remaining)
        torch.ones(size, size) @ torch.ones(size, size)

    net[0].weight.register_hook(grow)
    assert [charge_of(once, net, x).total - without for _ in sizes] == [2 * size**3 for size in sizes]


def test_the_cost_of_a_call_with_such_hooks_is_not_known_without_the_call() -> None:
    net, x, once = mlp(), torch.ones(4, 6), count_once(gradients)
    net[0].weight.register_hook(more_work)
    with Meter(), pytest.raises(RuntimeError, match="gradients has hooks.*call it instead, or remove the hooks"):
        once.charges(net, x)


@pytest.mark.parametrize("bind", [types.MethodType, functools.partial])
def test_a_forward_that_was_set_on_a_module_is_part_of_the_signature(bind: Callable[..., object]) -> None:
    net, x = nn.Sequential(nn.Linear(6, 6), nn.ReLU()), torch.ones(4, 6)
    answer = count_once(lambda net, x: net(x))
    for times in (1, 3, 2):
        if times > 1:
            net[0].forward = bind(_repeated(times), net[0])
        for _ in range(2):
            assert charge_of(answer, net, x).total == count(lambda: net(x)).total == 2 * 4 * 6 * 6 * times
    del net[0].forward
    assert charge_of(answer, net, x).total == 2 * 4 * 6 * 6


def _repeated(times: int) -> Callable[[nn.Linear, Tensor], Tensor]:
    def forward(layer: nn.Linear, x: Tensor) -> Tensor:
        for _ in range(times):
            x = nn.functional.linear(x, layer.weight, layer.bias)
        return x

    return forward


def test_a_signature_with_a_forward_does_not_keep_its_module_alive() -> None:
    net, answer = nn.Linear(6, 6), count_once(lambda net, x: net(x))
    net.forward = types.MethodType(_repeated(2), net)
    charge_of(answer, net, torch.ones(4, 6))
    alive = weakref.ref(net)
    del net
    gc.collect()
    assert alive() is None
