"""The rates of throughput.toml: FLOPs of the paper's rule per second of one core, with the engine that `auto` chooses.

ALMA_DATA=… OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_throughput.py
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from agents.catalogue.spec import RunSpec
from agents.reproduction.throughput import measure, measure_long
from agents.sweeps.process_setup import keep_freed_memory

pytestmark = pytest.mark.benchmark

SECONDS = 4.0  # measured after the first stage; at least one stage
LEARNERS = ("sm", "ens", "umix", "gens", "gmoe")
CASES = [
    *(("MNIST", agent, width, 10, {}) for agent in LEARNERS for width in (4, 16, 64)),
    *(("MNIST", agent, width, 1, {}) for agent in LEARNERS[:-1] for width in (4, 16, 64)),
    *(("MNIST", "gmoe", width, 1, {"init_experts": 250}) for width in (4, 8)),
    *(("Digits", agent, 4, 1, {"epochs": 10}) for agent in LEARNERS),
]

# Epochs by width, so that they take longer than the answers on the test set.
LONG = [
    *((agent, 4, wait, 41) for agent in (*LEARNERS, "ff") for wait in (10, 2)),
    *(("sm", width, 2, epochs) for width, epochs in ((8, 13), (16, 6), (32, 4), (64, 3))),
]


@pytest.mark.parametrize(("data", "agent", "width", "wait", "settings"), CASES)
def test_flops_per_second_of_one_core(
    benchmark: Any, data: str, agent: str, width: int, wait: int, settings: dict[str, int]
) -> None:
    keep_freed_memory()  # like the command line
    spec = RunSpec(f"{data}-ALMA-v0", agent, width=width, wait=wait, settings=settings)
    # The ensemble has more members at each stage; at w = 1, the last stages take ten times as long as the first.
    enough = math.inf if agent == "gens" and wait == 1 and data != "Digits" else SECONDS
    found = benchmark.pedantic(measure, (spec, enough), rounds=1, iterations=1)
    benchmark.extra_info.update(rate=found.rate / 1e9, stages=len(found.stages), engine=found.engine)
    print(
        f"\n[{data}, w = {wait}] {agent} = {{ {width} = {found.rate / 1e9:.3g} }}  # {found.engine}, "
        f"start = {found.start:.1f}, {len(found.stages)} stages in {sum(found.stages):.1f} s"
    )


@pytest.mark.parametrize(("agent", "width", "wait", "epochs"), LONG)
def test_flops_per_second_of_one_core_in_a_stage_of_100_epochs(
    benchmark: Any, agent: str, width: int, wait: int, epochs: int
) -> None:
    """A stage of one epoch and a stage of several give the time of an epoch, and so the time of 100 epochs."""
    keep_freed_memory()
    spec = RunSpec("CIFAR10-ALMA-v0", agent, width=width, wait=wait)
    found = benchmark.pedantic(measure_long, (spec, epochs), rounds=1, iterations=1)
    if found.growth is not None:
        print(f"\n[CIFAR10, w = {wait}] {agent}-growth = {{ {width} = {found.growth / 1e9:.3g} }}")
    few = f"{found.stages[0]:.2f} s with 1 epoch"
    print(f"\n[CIFAR10, w = {wait}] {agent} = {{ {width} = {found.rate / 1e9:.3g} }}  # {few}")
