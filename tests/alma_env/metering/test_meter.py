"""The meter: phases, forward and backward FLOPs, declared charges, and saved states."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from alma_env.errors import UnknownCostError
from alma_env.metering import Charge, Meter, count, count_once, phase, running

from .counted_work import PRODUCT, Listener, batch, mlp, product, step, step_flops


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
