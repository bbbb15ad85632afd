"""The meter: phases, forward and backward FLOPs, functions counted once, and provenance."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import random
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import alma_env
from alma_env.errors import UnknownCostError
from alma_env.metering import Charge, Meter, cost_varies_with, count, count_once, phase, running
from alma_env.metering.records import Provenance

PRODUCT = 2 * 4 * 4 * 4


def product() -> Tensor:
    return torch.ones(4, 4) @ torch.ones(4, 4)


def mlp(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


def batch(examples: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(examples, 6), torch.randint(3, (examples,))


def step(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def step_flops(examples: int = 5, width: int = 4) -> tuple[int, int]:
    forward = 2 * examples * (6 * width + width * 3)
    return forward, forward + 2 * examples * width * 3


# --- phases and charges ---


def test_the_innermost_phase_is_charged_and_training_is_the_default() -> None:
    meter = Meter()
    with meter:
        product()
        with meter.phase("validation"):
            product()
            with meter.phase("growth"):
                product()
            product()
        product()
    assert meter.take().flops == {"training": 2 * PRODUCT, "validation": 2 * PRODUCT, "growth": PRODUCT}
    assert meter.take() == Charge()
    assert meter.total == 5 * PRODUCT


def test_work_outside_of_the_block_is_not_charged() -> None:
    meter = Meter()
    product()
    with meter:
        pass
    product()
    assert meter.total == 0


def test_forward_and_backward_flops_are_separate() -> None:
    net, (x, y) = mlp(), batch()
    charge = count(step, net, torch.optim.SGD(net.parameters(), 0.1), x, y)
    forward, backward = step_flops()
    assert charge == Charge({"training": forward + backward}, {"training": forward})
    assert charge.total == forward + backward


def test_a_forward_pass_that_checkpointing_repeats_counts_as_backward() -> None:
    net, (x, _) = mlp(), batch()
    forward, backward = step_flops()
    with set_checkpoint_early_stop(False):
        charge = count(lambda: checkpoint(net, x, use_reentrant=False).sum().backward())
    assert charge == Charge({"training": 2 * forward + backward}, {"training": forward})
    x.requires_grad_()
    reentrant = count(lambda: checkpoint(net, x, use_reentrant=True).sum().backward())
    assert reentrant.forward == {"training": forward}


def test_the_phase_function_acts_on_the_running_meter_if_there_is_one() -> None:
    meter = Meter()
    assert running() is None
    with phase("validation"):
        product()
    with meter:
        assert running() is meter
        with phase("validation"):
            product()
    assert running() is None
    assert meter.take().flops == {"validation": PRODUCT}


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_phase_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="must be a non-empty string"), Meter().phase(name):
        pass


def test_charges_survive_an_exception_and_the_meter_can_be_entered_again() -> None:
    meter = Meter()

    def fail() -> None:
        with meter, meter.phase("growth"):
            product()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert running() is None
    with meter:
        product()
    assert meter.take().flops == {"growth": PRODUCT, "training": PRODUCT}


def test_an_unknown_operation_raises_inside_the_block_also_in_a_backward_pass() -> None:
    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            return torch.linalg.matrix_exp(grad)

    meter = Meter()
    with pytest.raises(UnknownCostError, match="linalg_matrix_exp"), meter:
        Exponential.apply(torch.ones(3, 3, requires_grad=True)).sum().backward()
    assert not meter.running


def test_entering_twice_is_refused() -> None:
    meter = Meter()
    with meter:
        with pytest.raises(RuntimeError, match="running in this thread already"):
            meter.__enter__()
        with pytest.raises(RuntimeError, match="another meter is running in this thread"):
            Meter().__enter__()
        errors: list[str] = []

        def enter() -> None:
            try:
                meter.__enter__()
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        product()
    assert ["running in another thread" in error for error in errors] == [True]
    assert meter.total == PRODUCT


def test_nothing_is_charged_while_the_meter_is_paused() -> None:
    meter = Meter()
    once = count_once(product)
    with meter:
        with meter.paused():
            assert running() is None
            product()
            once()
            assert count(product).total == PRODUCT
        assert running() is meter
        product()
    with meter.paused():
        product()
    assert meter.total == PRODUCT


class Listener(TorchDispatchMode):
    """A user's mode, which must see all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_the_users_modes_stay_active_while_the_meter_is_paused() -> None:
    a = torch.ones(4, 4)
    for inside in (True, False):
        meter, listener = Meter(), Listener()
        outer, inner = (meter, listener) if inside else (listener, meter)
        with outer, inner:
            a @ a
            with meter.paused():
                a @ a
            a @ a
        assert listener.seen.count("aten::mm") == 3
        assert meter.total == 2 * PRODUCT
        assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def test_declared_charges_have_reasons_and_are_not_forward_flops() -> None:
    meter = Meter()
    meter.declare(1000, reason="NumPy")
    meter.declare(np.int64(5), phase="growth", reason="Rust")
    with meter:
        product()
    assert meter.declared == ("NumPy", "Rust")
    assert meter.total == 1005 + PRODUCT
    charge = meter.take()
    assert charge.flops == {"training": 1000 + PRODUCT, "growth": 5}
    assert charge.forward == {"training": PRODUCT}
    assert charge.declared == ("NumPy", "Rust")
    assert meter.declared == ()


@pytest.mark.parametrize(
    ("flops", "options", "error"),
    [
        (-1, {"reason": "x"}, "must not be negative"),
        (1.5, {"reason": "x"}, "must be an int"),
        (True, {"reason": "x"}, "must be an int"),
        ("7", {"reason": "x"}, "must be an int"),
        (1, {"reason": " "}, "must be a non-empty string"),
        (1, {"reason": "x", "phase": ""}, "must be a non-empty string"),
    ],
)
def test_wrong_declarations_are_refused(flops: Any, options: dict[str, str], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Meter().declare(flops, **options)


def test_count_charges_the_current_phase_of_a_running_meter() -> None:
    meter = Meter()
    with meter, meter.phase("growth"):
        assert count(product).total == PRODUCT
        with pytest.raises(KeyError):
            count(lambda: (product(), {}[0]))
    assert meter.take().flops == {"growth": 2 * PRODUCT}


def test_include_adds_the_charges_of_other_processes() -> None:
    ours, theirs = Meter(), Meter()
    for meter in (ours, theirs):
        with meter:
            product()
            with meter.phase("growth"):
                product()
    theirs.declare(7, phase="growth", reason="x")
    ours.include(json.loads(json.dumps(theirs.pending())))
    assert (ours.total, theirs.total) == (4 * PRODUCT + 7, 2 * PRODUCT + 7)
    charge = ours.take()
    assert charge.flops == {"training": 2 * PRODUCT, "growth": 2 * PRODUCT + 7}
    assert charge.forward == {"training": 2 * PRODUCT, "growth": 2 * PRODUCT}
    assert charge.declared == ("x",)
    with ours, pytest.raises(RuntimeError, match="include charges outside of its `with meter:` block"):
        ours.include(theirs.pending())


def test_included_charges_give_no_provenance() -> None:
    ours, theirs, weight = Meter(), Meter(), torch.zeros(4, 4)
    with theirs:
        weight += product()
    ours.include(theirs.pending())
    assert ours.total == PRODUCT
    assert ours.provenance(weight) is None


# --- state and copies ---


def test_the_state_is_plain_json_and_restores_all_charges() -> None:
    meter = Meter()
    with meter:
        product()
    meter.take()
    with meter, meter.phase("growth"):
        product()
    meter.declare(7, reason="x")
    other = Meter()
    other.load_state_dict(json.loads(json.dumps(meter.state_dict())))
    assert other.total == meter.total == 2 * PRODUCT + 7
    assert other.take() == meter.take()
    other.reset()
    assert other.total == 0
    other.total = 12
    assert other.total == 12
    assert other.take() == Charge()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda meter: pickle.loads(pickle.dumps(meter))])
def test_a_meter_can_be_copied_and_pickled_while_it_is_not_running(duplicate: Callable[[Meter], Meter]) -> None:
    meter, weight = Meter(), torch.zeros(4, 4)
    with meter:
        weight += product()
    twin = duplicate(meter)
    assert meter.provenance(weight) is not None
    assert twin.provenance(weight.clone()) == meter.provenance(weight)  # recognized by its content
    assert twin.take() == meter.take()
    with twin:
        product()
    assert (twin.total, meter.total) == (2 * PRODUCT, PRODUCT)
    with meter, pytest.raises(RuntimeError, match="copy or pickle it outside"):
        duplicate(meter)


# --- transformations of PyTorch ---


def test_compiled_vectorised_and_functional_code_costs_what_eager_code_costs() -> None:
    net, (x, y) = mlp(), batch()
    parameters = dict(net.named_parameters())
    eager = count(lambda: F.cross_entropy(net(x), y).backward())

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(net, parameters, (x,)), y)

    assert count(torch.func.grad(loss), parameters, x, y) == eager
    assert count(torch.vmap(net), x[:, None]).total == count(net, x).total
    compiled = torch.compile(net, backend="eager")
    assert count(lambda: F.cross_entropy(compiled(x), y).backward()) == eager
    compiled(x)
    assert count(lambda: F.cross_entropy(compiled(x), y).backward()) == eager
    with torch.autocast("cpu", torch.bfloat16):
        assert count(lambda: F.cross_entropy(net(x), y).backward()) == eager
    per_example = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    assert count(per_example, parameters, x[:, None], y[:, None]) == eager
    assert count(lambda: torch.jit.trace(net, x, check_trace=False)(x)).total >= count(net, x).total


def test_the_inner_operations_of_a_tensor_subclass_are_counted() -> None:
    class Wrapped(Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args = [a.inner if isinstance(a, Wrapped) else a for a in args]
            return func(*args, **(kwargs or {}))

        @staticmethod
        def __new__(cls, inner: Tensor) -> Any:
            wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape)  # type: ignore[attr-defined]
            wrapped.inner = inner
            return wrapped

    assert count(lambda: Wrapped(torch.ones(4, 4)) @ torch.ones(4, 4)).total == PRODUCT
    ragged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    assert count(lambda: ragged @ torch.ones(4, 4)).total == 2 * 5 * 4 * 4


def test_fake_tensors_compute_nothing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def infer() -> None:
        with FakeTensorMode():
            product()

    assert count(infer).total == 0


# --- functions that are counted once ---


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


def test_a_function_must_not_change_tensors_that_are_not_its_arguments() -> None:
    net, (x, y) = mlp(), batch()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    before = copy.deepcopy(net.state_dict())
    once = count_once(lambda x, y: step(net, optimizer, x, y))
    with Meter(), pytest.raises(RuntimeError, match="not among the function's arguments"):
        once(x, y)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_arguments_must_be_copyable_and_comparable() -> None:
    computed = torch.ones(4, 4, requires_grad=True) * 2
    with Meter():
        with pytest.raises(RuntimeError, match="detach computed tensors"):
            count_once(torch.relu)(computed)
        with pytest.raises(TypeError, match="cannot be compared"):
            count_once(len)({1, 2})


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


# --- functions whose cost varies with a number ---


@count_once
def rows_of(mask: Tensor, x: Tensor) -> Tensor:
    rows = x[mask]
    cost_varies_with(len(rows))
    with phase("validation"):
        x @ x
    return rows @ x


def chosen(rows: int) -> Tensor:
    """A mask of fixed shape."""
    return torch.arange(8) < rows


def test_a_cost_that_varies_with_a_number_equals_the_full_count() -> None:
    x = torch.ones(8, 8)
    meter, in_full = Meter(), Meter()
    for rows in (3, 3, 5, 0, 8, 1, 7, 3):
        with meter:
            rows_of(chosen(rows), x)
        with in_full:
            rows_of.fn(chosen(rows), x)
        assert meter.take() == in_full.take()


def test_calls_are_counted_until_three_numbers_were_reported() -> None:
    modes: list[bool] = []

    @count_once
    def step(mask: Tensor, x: Tensor) -> None:
        modes.append(torch.utils._python_dispatch.is_in_torch_dispatch_mode())
        rows_of.fn(mask, x)

    with Meter():
        for rows in (3, 3, 5, 0, 8, 1):
            step(chosen(rows), torch.ones(8, 8))
    assert modes == [True] * 5 + [False] * 2, "the first call is also counted on copies"


@pytest.mark.parametrize("steps", [1, 6])
def test_numbers_reported_by_inner_functions_count_for_the_outer_function(steps: int) -> None:
    def twice(masks: list[Tensor], x: Tensor) -> None:
        for mask in masks:
            rows_of(mask, x)

    outer, meter, in_full, x = count_once(twice), Meter(), Meter(), torch.ones(8, 8)
    for first in range(steps):
        masks = [chosen(first), chosen(2 * first % 7)]
        with meter:
            outer(masks, x)
        with in_full:
            for mask in masks:
                rows_of.fn(mask, x)
    assert meter.take() == in_full.take()


def test_a_cost_that_is_not_affine_in_the_number_is_refused() -> None:
    @count_once
    def square(mask: Tensor, x: Tensor) -> None:
        rows = x[mask]
        cost_varies_with(len(rows))
        rows @ rows.T

    @count_once
    def late(mask: Tensor, x: Tensor) -> None:
        if mask.any():
            cost_varies_with(1)

    x = torch.ones(8, 8)
    with Meter():
        square(chosen(1), x), square(chosen(2), x)
        with pytest.raises(RuntimeError, match=r"square reported cost_varies_with\(3\).* a \+ b"):
            square(chosen(3), x)
        late(chosen(0), x)
        with pytest.raises(RuntimeError, match="report a number that the cost is proportional to, in each call"):
            late(chosen(1), x)


def test_cost_varies_with_does_nothing_outside_of_count_once() -> None:
    meter, x = Meter(), torch.ones(8, 8)
    rows_of(chosen(2), x)
    with meter:
        cost_varies_with(3)
        rows_of.fn(chosen(2), x)
    assert meter.total == 2 * 8 * 8 * (2 + 8)


# --- provenance ---


def fill(net: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(value)


def provenances(meter: Meter, net: nn.Module) -> set[Any]:
    return {meter.provenance(p) for p in net.parameters()}


@pytest.fixture
def trained() -> tuple[Meter, nn.Sequential]:
    meter, net, (x, y) = Meter(), mlp(), batch()
    with meter:
        step(net, torch.optim.SGD(net.parameters(), 0.1), x, y)
    return meter, net


COUNTED = Provenance(counted=True, written=True)


def test_trained_parameters_have_provenance(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    assert provenances(meter, net) == {COUNTED}
    assert provenances(Meter(), net) == {None}


def test_parameters_changed_outside_of_the_block_have_no_provenance(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    fill(net, 1.0)
    assert provenances(meter, net) == {None}


def test_parameters_changed_by_numpy_have_no_provenance(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    with meter:
        pass
    net[0].weight.detach().numpy()[...] += 1
    assert meter.provenance(net[0].weight) is None
    assert meter.provenance(net[0].bias) == COUNTED


@pytest.mark.parametrize("first_out", [0, 1])
def test_meters_of_two_threads_leave_pytorch_free_to_compile_only_after_both(first_out: int) -> None:
    threads, flags = [ThreadPoolExecutor(1) for _ in range(2)], []
    meters = [Meter(), Meter()]
    for thread, meter in zip(threads, meters, strict=True):
        thread.submit(meter.__enter__).result()
    for number in (first_out, 1 - first_out):
        threads[number].submit(meters[number].__exit__).result()
        flags.append(torch.utils._python_dispatch.is_in_torch_dispatch_mode())
    assert flags == [True, False]


@pytest.mark.parametrize("how", ["thread", "numpy", "disabled"])
def test_work_that_bypasses_the_dispatcher_is_neither_counted_nor_written(how: str) -> None:
    net, meter, (x, y) = mlp(), Meter(), batch()
    with meter:
        if how == "thread":
            thread = threading.Thread(target=fill, args=(net, 1.0))
            thread.start()
            thread.join()
        elif how == "disabled":
            with _disable_current_modes():
                step(net, torch.optim.SGD(net.parameters(), 0.1), x, y)
        else:
            for parameter in net.parameters():
                parameter.detach().numpy()[...] += 1
        with torch.no_grad():
            net(x)
    assert meter.total == step_flops()[0], "only the forward pass"
    assert provenances(meter, net) == {Provenance(counted=True, written=False)}, "read, but not written, in the block"


def test_a_changed_parameter_that_a_block_only_reads_is_not_counted(
    trained: tuple[Meter, nn.Sequential],
) -> None:
    meter, net = trained
    fill(net, 1.0)
    with meter:
        net(batch()[0])
    assert {one.counted for one in provenances(meter, net)} == {False}


def test_provenance_records_whether_the_block_counted_flops() -> None:
    net, meter = mlp(), Meter()
    with meter:
        fill(net, 1.0)
    assert provenances(meter, net) == {Provenance(counted=False, written=True)}
    with meter:
        fill(net, 2.0)
        meter.declare(10, reason="by hand")
    assert provenances(meter, net) == {COUNTED}


def test_provenance_lasts_over_later_blocks(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    for _ in range(3):
        with meter:
            torch.zeros(3) + 1
    assert provenances(meter, net) == {COUNTED}


def test_copies_have_the_provenance_of_the_original(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    assert provenances(meter, copy.deepcopy(net)) == {COUNTED}
    best = {name: value.clone() for name, value in net.state_dict().items()}
    with meter:
        fill(net, 0.0)
    with meter:
        net.load_state_dict(best)
    assert {one.counted for one in provenances(meter, net)} == {False}, (
        "the copy was made outside and its content is gone"
    )


def test_the_best_epoch_restored_in_another_block_is_counted() -> None:
    meter, net, (x, y) = Meter(), mlp(), batch()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with meter:
        step(net, optimizer, x, y)
        best = copy.deepcopy(net.state_dict())
        step(net, optimizer, x, y)
    with meter:
        net.load_state_dict(best)
    assert provenances(meter, net) == {COUNTED}


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Parameter(torch.randn(3, 4) @ torch.randn(4, 3)),
        lambda: nn.Parameter(torch.cat([torch.randn(3, 3), product()[:, :3]])),
        lambda: torch.from_numpy(np.ones((3, 3), np.float32)),
        lambda: nn.Linear(3, 3).weight,
        lambda: torch.randn(3),
        lambda: torch.stack([torch.ones(3)] * 2)[1],
    ],
)
def test_created_tensors_have_provenance(make: Callable[[], Tensor]) -> None:
    meter = Meter()
    with meter:
        product()
        made = make()
    assert meter.provenance(made) == COUNTED


def test_batch_norm_statistics_have_provenance() -> None:
    meter, norm = Meter(), nn.BatchNorm1d(4)
    with meter:
        norm(product())
    assert meter.provenance(norm.running_mean) == meter.provenance(norm.running_var) == COUNTED  # type: ignore[arg-type]


def test_arguments_and_results_of_a_counted_function_have_provenance() -> None:
    def update(weights: Tensor, x: Tensor) -> Tensor:
        return weights.add_(x @ x)

    @count_once
    def functional(weights: Tensor, x: Tensor) -> dict[str, Tensor]:
        return {"weights": weights + x @ x}

    meter, weights, x = Meter(), torch.zeros(4, 4), torch.ones(4, 4)
    net, (inputs, y) = mlp(), batch()
    with meter:
        count_once(update)(weights, x)
        made = functional(weights, x)["weights"]
        count_once(step)(net, torch.optim.SGD(net.parameters(), 0.1), inputs, y)
    assert meter.provenance(weights) == meter.provenance(made) == COUNTED
    assert provenances(meter, net) == {COUNTED}


def test_touched_tensors_have_provenance() -> None:
    meter, net = Meter(), mlp()
    with meter:
        product()
        with _disable_current_modes():
            fill(net, 3.0)
        meter.touch(net)
    assert provenances(meter, net) == {COUNTED}


def test_a_pause_ends_the_block() -> None:
    meter, weight = Meter(), torch.zeros(4, 4)
    with meter:
        weight += product()
        with meter.paused():
            assert meter.provenance(weight) == COUNTED
            weight += 1
            assert meter.provenance(weight) is None
    assert meter.provenance(weight) is None


def test_provenance_holds_no_memory_and_drops_freed_storages() -> None:
    meter = Meter()
    with meter:
        for _ in range(10_000):
            torch.zeros(1) + 1
        assert len(meter._provenance.touched) < 10_000
        kept = torch.zeros(1) + 1
    assert meter.provenance(kept) is not None
    assert len(meter._provenance.records) < 100
    del kept
    gc.collect()
    with meter:
        pass
    assert not meter._provenance.records


def test_integer_meta_and_sparse_tensors_have_no_provenance() -> None:
    meter = Meter()
    with meter:
        integer, meta = torch.zeros(3, dtype=torch.int64) + 1, torch.zeros(3, device="meta") + 1
        sparse = torch.eye(3).to_sparse()
    assert [meter.provenance(t) for t in (integer, meta, sparse)] == [None] * 3


def test_reset_deletes_charges_and_provenance(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    meter.reset()
    assert meter.total == 0
    assert provenances(meter, net) == {None}


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
