"""Functions that are counted once for each signature of their arguments."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import alma_env
from alma_env.metering import Charge, Meter, count_once, function_cost, phase, running
from alma_env.metering.uncounted import uncounted

from .counted_work import PRODUCT, Listener, batch, mlp, step, step_flops


def test_count_once_charges_the_full_cost_at_every_call() -> None:
    forward, backward = step_flops()
    net, (x, y), meter = mlp(), batch(), Meter()
    optimizer = torch.optim.Adam(net.parameters())
    once = count_once(step)
    with meter:
        for _ in range(3):
            once(net, optimizer, x, y)
        once(net, optimizer, x[:2], y[:2])
        with phase("growth"):
            once(net, optimizer, x, y)
    less, more = step_flops(2)
    full = forward + backward
    assert meter.take() == Charge(
        {"training": 3 * full + less + more, "growth": full}, {"training": 3 * forward + less, "growth": forward}
    )


def test_costs_of_large_signatures_are_forgotten_and_counted_again(monkeypatch) -> None:
    """A network that grows at each tick has thousands of tensors, and no signature twice."""
    once, (x, y), meter = count_once(step), batch(), Meter()
    counted: list[int] = []
    on_copies = function_cost._count_on_copies

    def noted(fn: Any, args: Any, *rest: Any) -> Any:
        counted.append(len(args[3]))
        return on_copies(fn, args, *rest)

    monkeypatch.setattr(function_cost, "_count_on_copies", noted)
    net, sizes = mlp(), (1, 2, 1, 2, 3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with meter:
        once(net, optimizer, x, y)
        (parts,) = map(len, once._costs)
        monkeypatch.setattr(function_cost, "_MOST_PARTS", 2 * parts)
        for size in sizes:
            once(net, optimizer, x[:size], y[:size])
    assert counted == [len(y), 1, 2, 1, 3, 1]  # two costs are kept; the third takes the place of both
    assert meter.take().total == sum(sum(step_flops(size)) for size in (len(y), *sizes))


def test_counting_does_not_disturb_arguments_or_random_numbers() -> None:
    def noisy(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
        random.random(), np.random.rand()  # noqa: NPY002
        step(net, optimizer, F.dropout(x), y)

    results = []
    for in_block in (False, True):
        torch.manual_seed(0), random.seed(0), np.random.seed(0)  # noqa: NPY002
        net, (x, y), once = mlp(), batch(), count_once(noisy)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        meter = Meter()
        for _ in range(3):
            if in_block:
                with meter:
                    once(net, optimizer, x, y)
            else:
                once(net, optimizer, x, y)
        results.append(([p.tolist() for p in net.parameters()], torch.rand(1), random.random(), np.random.rand()))  # noqa: NPY002
        assert (meter.total > 0) == in_block
    assert results[0] == results[1]


def test_phases_inside_a_counted_function_are_charged() -> None:
    def both(x: Tensor) -> None:
        x @ x
        with phase("validation"):
            x @ x

    once, meter, x = count_once(both), Meter(), torch.ones(4, 4)
    with meter, meter.phase("growth"):
        once(x), once(x)
    assert meter.take().flops == {"growth": 2 * PRODUCT, "validation": 2 * PRODUCT}


def test_nested_counted_functions_are_charged_once() -> None:
    inner = count_once(lambda x: x @ x)
    outer = count_once(lambda x: inner(x) @ x)
    meter, x = Meter(), torch.ones(4, 4)
    with meter:
        outer(x), outer(x)
    assert meter.total == 4 * PRODUCT


def test_a_function_must_not_change_tensors_that_are_not_its_arguments() -> None:
    net, (x, y) = mlp(), batch()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    before = copy.deepcopy(net.state_dict())
    once = count_once(lambda x, y: step(net, optimizer, x, y))
    with Meter(), pytest.raises(RuntimeError, match="not among the function's arguments"):
        once(x, y)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_what_a_copy_of_an_argument_computes_is_charged() -> None:
    """The first call of a signature copies its arguments: the code of a user must not compute unseen then."""

    class Net(nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> Net:
            self.weight.detach() @ self.weight.detach()
            return self

    net, meter, x = Net(4, 4, bias=False), Meter(), torch.ones(4, 4)
    once = count_once(lambda net, x: x @ x)
    with meter:
        once(net, x), once(net, x)
    assert meter.total == 3 * PRODUCT


def test_a_counted_method_does_not_keep_its_object_alive() -> None:
    class Learner:
        def __init__(self) -> None:
            self.net = mlp()
            self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)

        @count_once
        def train(self, x: Tensor, y: Tensor) -> None:
            step(self.net, self.optimizer, x, y)

    learner, meter, (x, y) = Learner(), Meter(), batch()
    with meter:
        learner.train(x, y)
        learner.train(x, y)
    assert meter.total == 2 * sum(step_flops())
    alive = weakref.ref(learner)
    del learner
    gc.collect()
    assert alive() is None


def test_the_networks_of_a_counted_methods_object_can_grow() -> None:
    class Learner:
        def __init__(self, net: nn.Module) -> None:
            self.steps = 0
            self.nets = [net]

        @count_once
        def train(self, x: Tensor, y: Tensor) -> None:
            self.steps += 1
            for net in self.nets:
                nn.functional.cross_entropy(net(x.float()), y).backward()
                with torch.no_grad():
                    for parameter in net.parameters():
                        parameter.sub_(0.01 * parameter.grad)
                        parameter.grad = None

    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    observation, _ = env.reset(seed=0)
    x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
    learner, costs = Learner(nn.Identity()), []
    for width in (4, 40):
        learner.nets = [nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))]
        before = env.meter.total
        with env.meter:
            for _ in range(3):
                learner.train(x, y)
        costs.append(env.meter.total - before)
    per_example = [3 * (2 * (2 * 64 * width) + 3 * 2 * width * 10) for width in (4, 40)]
    assert costs == [len(x) * cost for cost in per_example]
    deployed = nn.Sequential(Raw(), learner.nets[0])
    env.step(deployed)
    assert env.tick == 1


class Raw(nn.Module):
    """Raw inputs as floats."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float()


def test_a_users_mode_sees_the_operations_of_a_counted_function() -> None:
    once, meter, x = count_once(torch.mm), Meter(), torch.ones(4, 4)
    with meter:
        once(x, x), once(x, x)
    with Listener() as listener, meter:
        once(x, x)
    with meter, Listener() as listener:
        once(x, x)
    assert "aten::mm" in listener.seen
    assert meter.total == 4 * PRODUCT


def test_a_function_that_raises_is_charged_and_leaves_the_meter_running() -> None:
    def fail(x: Tensor) -> Tensor:
        x @ x
        if running() is None:
            raise KeyError
        return x

    once, meter, x = count_once(fail), Meter(), torch.ones(4, 4)
    with meter:
        with pytest.raises(KeyError):
            once(x)
        assert running() is meter
        x @ x
    assert meter.total == 2 * PRODUCT


def test_an_uncounted_block_charges_nothing_and_the_meter_goes_on_after_it() -> None:
    body, x = nn.Linear(4, 3), torch.ones(2, 4)
    counted = count_once(lambda body, x: body(x))
    with Meter() as meter:
        counted(body, x)
        once = meter.total
        with uncounted():
            counted(body, x)
            with uncounted():
                body(x)
            body(x)
        assert meter.total == once > 0
        counted(body, x)
        assert meter.total == 2 * once


def test_an_uncounted_block_that_fails_has_written_its_tensors() -> None:
    weights = torch.zeros(200)

    def fail() -> None:
        with uncounted([weights]):
            weights.normal_()
            raise KeyboardInterrupt

    with Meter() as meter:
        weights.normal_()
        with pytest.raises(KeyboardInterrupt):
            fail()
        assert running() is meter
    made = meter.provenance(weights)
    assert made is not None
    assert (made.written, made.foreign) == (True, "")
