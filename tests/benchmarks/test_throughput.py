"""The rates of throughput.toml: FLOPs of the paper's rule per second of one core, with the engine that `auto` chooses.

ALMA_DATA=… OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_throughput.py
"""

from __future__ import annotations

import dataclasses
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
    # Waiting times by width: two stages of a wide network take minutes.
    *(("CIFAR10", agent, width, wait, {"epochs": 5}) for agent in LEARNERS for width, wait in ((4, 10), (16, 4))),
    *(("CIFAR10", "sm", width, wait, {"epochs": 5}) for width, wait in ((8, 10), (32, 4), (64, 2))),
    ("CIFAR10", "ff", 4, 10, {"epochs": 5, "candidates": 8}),
    *(("Digits", agent, 4, 1, {"epochs": 10}) for agent in LEARNERS),
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

    def stages() -> None:
        nonlocal observation
        while not env.done and sum(seconds[1:]) < SECONDS:
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


@dataclass(frozen=True)
class FirstTicks(DataFacts):
    """The facts about a stream that ends early; its mega-batches are as large as those of the whole stream."""

    train: int = 0

    @property
    def sizes(self) -> Sizes:
        return dataclasses.replace(super().sizes, train=self.train)


def flops_of(spec: RunSpec, facts: DataFacts, stages: int) -> float:
    """Return the FLOPs of the first stages: training by the paper's rule, validation, answers on the test set."""
    ticks = stages * (spec.wait or 1)
    part = FirstTicks(**vars(facts) | {"ticks": ticks}, train=ticks * (facts.sizes.train // facts.ticks))
    effort = effort_of(resolve(spec, facts), part)
    return effort.training_flops + effort.other_flops
