"""A batch of several seeds against a single run, as ratios of CPU times within one process.

The variants train on MNIST with one thread and take turns, stage by stage. The least time of a stage counts, because
other work on the machine can only increase it.

ALMA_DATA=… OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_batched.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import agents
import alma_env
from agents.learners.anytime import AnytimeAgent
from agents.learners.seed_batch import train_batch
from agents.sweeps.process_setup import keep_freed_memory
from alma_env import AlmaEnv

pytestmark = pytest.mark.benchmark

Run = tuple[AlmaEnv, AnytimeAgent]


@pytest.fixture(autouse=True)
def memory_settings_of_the_command_line() -> None:
    keep_freed_memory()


class Batch:
    """Runs that advance tick by tick together; a single run trains without a batch."""

    def __init__(self, data: alma_env.DataSet, seeds: int, **keywords: Any) -> None:
        self.runs = []
        for seed in range(seeds):
            env = AlmaEnv(data, 500)
            agent = agents.make("sm", env, seed=seed, device="cpu", **keywords)
            env.reset(seed=seed, options={"predictor": agent.predictor})
            self.runs.append((env, agent))

    def stage(self) -> tuple[float, float]:
        """Return the CPU seconds of the next stage: of its training, and of its ticks including the training."""
        start, training = time.process_time(), 0.0
        deployed: list[Any] = [None] * len(self.runs)
        while deployed[0] is None:
            for env, agent in self.runs:
                agent.gather(env.observation())
            decision = self.runs[0][1].policy(self.runs[0][1].progress())
            if decision.train:
                begin = time.process_time()
                deployed = self.train(decision)
                training = time.process_time() - begin
            for (env, _), predictor in zip(self.runs, deployed, strict=True):
                env.step(predictor)
        return training, time.process_time() - start

    def train(self, decision: agents.Decision) -> list[Any]:
        if len(self.runs) == 1:
            env, agent = self.runs[0]
            with env.meter:
                return [agent.carry_out(decision)]
        train, valid = zip(*(agent.examples(decision) for _, agent in self.runs), strict=True)
        with alma_env.shared([env.meter for env, _ in self.runs]) as shares:
            reports = train_batch([agent.learner for _, agent in self.runs], train, valid)  # type: ignore[misc]
            for env, agent in self.runs:
                shares.give(env.meter, agent.predictor)
        return [agent.trained(decision, report) for (_, agent), report in zip(self.runs, reports, strict=True)]


@pytest.mark.parametrize("wait", [1, 10])
@pytest.mark.parametrize(("width", "seeds", "target"), [(32, 8, 3), (4, 32, 5)])
def test_a_batch_of_seeds_against_a_single_run(
    benchmark: Any, real_data: Callable[..., alma_env.DataSet], width: int, seeds: int, target: int, wait: int
) -> None:
    data = real_data("MNIST")
    make = partial(Batch, data, width=width, wait=wait)
    variants = {
        (engine, number): make(number, engine=engine) for engine in ("plain", "compiled") for number in (1, seeds)
    }
    least = dict.fromkeys(variants, (float("inf"), float("inf")))

    def take_turns() -> None:
        for stage in range(6 if wait == 1 else 2):
            for variant, batch in variants.items():
                least[variant] = tuple(map(min, least[variant], batch.stage()))  # type: ignore[assignment]
            if stage == 0:  # the ratios need equal work; the rounding differences grow from stage to stage
                losses = [batch.runs[0][1].history[0].validation_loss for batch in variants.values()]
                assert losses == pytest.approx(losses[:1] * len(losses), rel=1e-2)

    benchmark.pedantic(take_turns, rounds=1, iterations=1)
    print(f"\nMNIST h={width} w={wait}: {seeds} seeds in one batch; target {target} x the time of one run")
    for place, what in enumerate(("training", "with its ticks")):
        for engine, one in (("plain", "plain"), ("compiled", "compiled"), ("compiled", "plain")):
            batch, single = least[engine, seeds][place], least[one, 1][place]
            benchmark.extra_info[f"{engine} / {one}, {what}"] = batch / single
            print(
                f"  {what:16} {engine:8} batch {1e3 * batch:8.0f} ms, one {one:8} run {1e3 * single:7.0f} ms: "
                f"{batch / single:5.2f} x"
            )
    flops = max(row.comp for row in variants["compiled", 1].runs[0][0].ledger)
    rate = flops / least["compiled", 1][0]
    print(
        f"  one compiled run: {flops / 1e9:.2f} GFLOP per stage, {rate / 1e9:.0f} GFLOP/s; at the target the batch "
        f"reaches {seeds / target * rate / 1e9:.0f}; products of 1,024 x 1,024 reach {_square_products() / 1e9:.0f}"
    )


def _square_products() -> float:
    """Return the FLOPs per second of one thread in large matrix products."""
    one, other, least = torch.randn(1024, 1024), torch.randn(1024, 1024), float("inf")
    for _ in range(10):
        begin = time.process_time()
        one @ other
        least = min(least, time.process_time() - begin)
    return 2 * 1024**3 / least
