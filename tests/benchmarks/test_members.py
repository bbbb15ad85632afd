"""Five members and five experts against the single model, in both engines.

The ratios compare CPU times of one thread on real mega-batches. The learners take turns, stage by stage, and the first
stage is a warm-up.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import agents
from agents.sweeps.process_setup import keep_freed_memory
from agents.training.stage import Examples
from alma_env import AlmaEnv

pytestmark = pytest.mark.benchmark


@pytest.fixture(autouse=True)
def memory_settings_of_the_command_line():
    keep_freed_memory()


def stages(env: AlmaEnv, wait: int, count: int) -> list[tuple[Examples, Examples]]:
    env.reset(seed=0)
    gathered = []
    for stage in range(count):
        parts = [env._stream.megabatch(stage * wait + tick) for tick in range(1, wait + 1)]
        gathered.append(
            tuple(
                Examples(*(torch.from_numpy(np.concatenate([part[name][key] for part in parts])) for key in ("x", "y")))
                for name in ("train", "valid")
            )
        )
    return gathered


def take_turns(benchmark, title: str, learners: dict, data: list) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    losses: dict[str, float] = {}

    def take_all_turns() -> None:
        for train, valid in data:
            for name, learner in learners.items():
                start = time.process_time()
                report = learner.train(train, valid)
                seconds[name].append(time.process_time() - start)
                losses.setdefault(name, report.best_loss)

    benchmark.pedantic(take_all_turns, rounds=1, iterations=1)
    for name in losses:
        if name.endswith("native"):  # the ratio needs equal work; the rounding differences grow from stage to stage
            assert losses[name] == pytest.approx(losses[name.replace("native", "plain")], rel=1e-2)
    medians = {name: float(np.median(values[1:])) for name, values in seconds.items()}
    print(f"\n{title}: " + ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in medians.items()))
    benchmark.extra_info.update(medians)
    return medians


@pytest.mark.parametrize(("data", "width", "epochs"), [("MNIST", 4, 100), ("MNIST", 32, 100), ("CIFAR10", 4, 2)])
def test_five_members_and_five_experts(benchmark, real_data, data, width, epochs):
    env = AlmaEnv(real_data(data), 500 if data == "MNIST" else 100)
    learners = {
        f"{id} {engine}": agents.make(id, env, width=width, engine=engine, epochs=epochs, **keywords).learner
        for id, keywords in (("sm", {}), ("ens", {}), ("umix", {}), ("gmoe", {"init_experts": 5}))
        for engine in ("plain", "native")
    }
    times = take_turns(benchmark, f"{data} width {width}", learners, stages(env, 1, 6))
    for id in ("sm", "ens", "umix", "gmoe"):
        plain, native = times[f"{id} plain"], times[f"{id} native"]
        print(f"  {id}: native {plain / native:.1f} x faster than plain; {native / times['sm native']:.2f} x sm")


def test_many_experts(benchmark, real_data):
    """The parameters of many experts and the state of their optimizer do not fit into the caches."""
    env = AlmaEnv(real_data("MNIST"), 500)
    options = {"width": 64, "epochs": 20, "engine": "native"}
    learners = {"sm": agents.make("sm", env, **options).learner}
    for experts in (10, 25, 50):
        learners[f"gmoe {experts}"] = agents.make("gmoe", env, init_experts=experts, **options).learner
    times = take_turns(benchmark, "MNIST width 64, w = 10", learners, stages(env, 10, 3))
    for experts in (10, 25, 50):
        print(f"  {experts} experts: {times[f'gmoe {experts}'] / experts / times['sm']:.2f} x sm, for each expert")


def test_a_tick_of_a_growing_ensemble_by_its_number_of_members(benchmark, real_data):
    """Measure the ticks without their training: the environment identifies the frozen members by content."""
    env = AlmaEnv(real_data("MNIST"), 500)
    agent = agents.make("gens", env, width=4, epochs=1, engine="plain")
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    ticks: list[float] = []

    def run() -> None:
        nonlocal observation
        for _ in range(400):
            with env.meter:
                predictor = agent.observe(observation)
            start = time.process_time()
            observation = env.step(predictor)[0]
            ticks.append(time.process_time() - start)

    benchmark.pedantic(run, rounds=1, iterations=1)
    few, many = (float(np.median(ticks[members - 20 : members])) for members in (100, 400))
    print(
        f"\na tick of gEns: {1e3 * few:.1f} ms with 100 members, {1e3 * many:.1f} ms with 400: "
        f"{1e3 * (many - few) / 300:.3f} ms a member"
    )
