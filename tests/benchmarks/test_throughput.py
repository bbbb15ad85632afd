"""The rates of throughput.toml: FLOPs of the paper's rule per second of one core, with the engine that `auto` chooses.

ALMA_DATA=… OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_throughput.py
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any

import pytest

from agents.catalogue.data_facts import DataFacts, Sizes, facts_of
from agents.catalogue.effort import effort_of
from agents.catalogue.spec import RunSpec, resolve
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
    begin = time.process_time()
    spec = RunSpec(f"{data}-ALMA-v0", agent, width=width, wait=wait, settings=settings)
    env = spec.make_env().unwrapped
    learner = spec.make_agent(env)
    observation, _ = env.reset(seed=0, options={"predictor": learner.predictor})
    before = time.process_time() - begin
    seconds: list[float] = []  # of each stage, with its ticks and answers
    # The ensemble has more members at each stage; at w = 1, the last stages take ten times as long as the first.
    enough = math.inf if agent == "gens" and wait == 1 and data != "Digits" else SECONDS

    def stages() -> None:
        nonlocal observation
        while not env.done and sum(seconds[1:]) < enough:
            start = time.process_time()
            for _ in range(min(wait, env.ticks - env.tick)):
                with env.meter:
                    predictor = learner.observe(observation)
                observation, *_ = env.step(predictor)
            seconds.append(time.process_time() - start)

    benchmark.pedantic(stages, rounds=1, iterations=1)
    flops = flops_of(spec, facts_of(env), len(seconds)) - flops_of(spec, facts_of(env), 1)
    rate = flops / sum(seconds[1:]) / 1e9
    engine = learner.config["engine"]
    benchmark.extra_info.update(rate=rate, stages=len(seconds), engine=engine)
    print(
        f"\n[{data}, w = {wait}] {agent} = {{ {width} = {rate:.3g} }}  # {engine}, start = {before:.1f}, "
        f"{len(seconds)} stages in {sum(seconds):.1f} s"
    )


@pytest.mark.parametrize(("agent", "width", "wait", "epochs"), LONG)
def test_flops_per_second_of_one_core_in_a_stage_of_100_epochs(
    benchmark: Any, agent: str, width: int, wait: int, epochs: int
) -> None:
    """A stage of one epoch and a stage of several give the time of an epoch, and so the time of 100 epochs."""
    keep_freed_memory()

    def second_stage(epochs: int) -> float:
        spec = RunSpec("CIFAR10-ALMA-v0", agent, width=width, wait=wait, settings={"epochs": epochs})
        env = spec.make_env().unwrapped
        learner = spec.make_agent(env)
        observation, _ = env.reset(seed=0, options={"predictor": learner.predictor})
        for tick in range(2 * wait):
            if tick == wait:
                start = time.process_time()
            with env.meter:
                predictor = learner.observe(observation)
            observation, *_ = env.step(predictor)
        return time.process_time() - start

    few, many = benchmark.pedantic(lambda: (second_stage(1), second_stage(epochs)), rounds=1, iterations=1)
    spec = RunSpec("CIFAR10-ALMA-v0", agent, width=width, wait=wait)
    facts = spec.known_facts()
    flops = flops_of(spec, facts, 2) - flops_of(spec, facts, 1)
    seconds = 99 * (many - few) / (epochs - 1) + few
    if agent == "ff":  # nearly all of the stage of one epoch is growth
        growth = effort_of(resolve(spec, facts), first_ticks(spec, facts, 2)).growth_flops
        print(f"\n[CIFAR10, w = {wait}] ff-growth = {{ {width} = {growth / few / 1e9:.3g} }}")
        flops, seconds = flops - growth, seconds - few
    print(f"\n[CIFAR10, w = {wait}] {agent} = {{ {width} = {flops / seconds / 1e9:.3g} }}  # {few:.2f} s with 1 epoch")


@dataclass(frozen=True)
class FirstTicks(DataFacts):
    """The facts about a stream that ends early; its mega-batches are as large as those of the whole stream."""

    train: int = 0

    @property
    def sizes(self) -> Sizes:
        return dataclasses.replace(super().sizes, train=self.train)


def first_ticks(spec: RunSpec, facts: DataFacts, stages: int) -> FirstTicks:
    """Return the facts about the ticks of the first stages of a run."""
    ticks = stages * (spec.wait or 1)
    return FirstTicks(**vars(facts) | {"ticks": ticks}, train=ticks * (facts.sizes.train // facts.ticks))


def flops_of(spec: RunSpec, facts: DataFacts, stages: int) -> float:
    """Return the FLOPs of the first stages: training by the paper's rule, validation, answers on the test set."""
    effort = effort_of(resolve(spec, facts), first_ticks(spec, facts, stages))
    return effort.training_flops + effort.other_flops
