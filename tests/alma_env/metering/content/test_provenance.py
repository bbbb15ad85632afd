"""Provenance: which tensors the meter knows to be made by metered operations."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from alma_env.metering import Meter, count_once
from alma_env.metering.content.records import Provenance

from ..counted_work import PRODUCT, batch, mlp, product, step, step_flops


def test_included_charges_give_no_provenance() -> None:
    ours, theirs, weight = Meter(), Meter(), torch.zeros(4, 4)
    with theirs:
        weight += product()
    ours.include(theirs.pending())
    assert ours.total == PRODUCT
    assert ours.provenance(weight) is None


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


def test_parameters_changed_by_numpy_have_no_provenance(trained: tuple[Meter, nn.Sequential]) -> None:
    meter, net = trained
    with meter:
        pass
    net[0].weight.detach().numpy()[...] += 1
    assert meter.provenance(net[0].weight) is None
    assert meter.provenance(net[0].bias) == COUNTED


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
    assert len(meter._provenance.known.records._records) < 100
    del kept
    gc.collect()
    with meter:
        pass
    assert not meter._provenance.known.records._records


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
