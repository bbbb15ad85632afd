"""Members trained at once against members trained one after another and against the single model.

The ratios compare CPU times of one thread on real mega-batches. The learners take turns, stage by stage, and the first
stage is a warm-up.
"""

from __future__ import annotations

import time
from functools import partial

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
        if f"{name} apart" in losses:  # the ratio needs equal work; the rounding differences grow from stage to stage
            assert losses[name] == pytest.approx(losses[f"{name} apart"], rel=1e-2)
    medians = {name: float(np.median(values[1:])) for name, values in seconds.items()}
    print(f"\n{title}: " + ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in medians.items()))
    benchmark.extra_info.update(medians)
    return medians


@pytest.mark.parametrize("engine", ["plain", "compiled"])
@pytest.mark.parametrize("wait", [1, 10])
@pytest.mark.parametrize("width", [4, 32])
def test_five_members_on_mnist(benchmark, real_data, width, wait, engine):
    env = AlmaEnv(real_data("MNIST"), 500)
    make = partial(agents.make, env=env, width=width, engine=engine, epochs=100 if wait == 1 else 20)
    learners = {
        "sm": make("sm").learner,
        "ens": make("ens", together=True).learner,
        "ens apart": make("ens", together=False).learner,
        "umix": make("umix", together=True).learner,
    }
    times = take_turns(benchmark, f"MNIST h={width}, w={wait}, {engine}", learners, stages(env, wait, 6))
    print(f"  ens / sm {times['ens'] / times['sm']:.2f}, umix / sm {times['umix'] / times['sm']:.2f}")


@pytest.mark.parametrize("width", [4, 8, 16])
def test_five_members_on_cifar10(benchmark, real_data, width):
    env = AlmaEnv(real_data("CIFAR10"), 100)
    make = partial(agents.make, env=env, width=width, epochs=2)
    learners = {
        "ens apart": make("ens", together=False).learner,
        "ens": make("ens", together=True).learner,
        "umix apart": make("umix", together=False).learner,
        "umix": make("umix", together=True).learner,
    }
    times = take_turns(benchmark, f"CIFAR-10 c={width}", learners, stages(env, 1, 6))
    ratios = [times[f"{name} apart"] / times[name] for name in ("ens", "umix")]
    print(f"  together is {ratios[0]:.2f} x faster for ens, {ratios[1]:.2f} x for umix")


@pytest.mark.parametrize(("data", "width", "epochs"), [("MNIST", 32, 20), ("CIFAR10", 8, 2)])
def test_a_mixture_of_k_experts(benchmark, real_data, data, width, epochs):
    env = AlmaEnv(real_data(data), 100)
    learners = {"sm": agents.make("sm", env, width=width, engine="plain", epochs=epochs).learner}
    for experts in (1, 2, 3, 5):
        made = agents.make("gmoe", env, width=width, engine="plain", epochs=epochs, init_experts=experts)
        learners[f"{experts} experts"] = made.learner
    apart = agents.make("gmoe", env, width=width, engine="plain", epochs=epochs, init_experts=5, together=False)
    learners["5 experts apart"] = apart.learner
    times = take_turns(benchmark, f"{data} width {width}, soft mixture", learners, stages(env, 1, 6))
    print(f"  5 experts at once: {times['5 experts apart'] / times['5 experts']:.2f} x faster than one after another")
    for experts in (1, 2, 3, 5):
        print(f"  {experts} experts: {times[f'{experts} experts'] / times['sm'] / experts:.2f} x {experts} x sm")


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
