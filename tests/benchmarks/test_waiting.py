"""Steps per second of the surrogate, and the overhead of the decision environment, in CPU time of one thread.

OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_waiting.py
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median

import gymnasium as gym
import numpy as np
import pytest

import agents
import alma_env
from agents.policies import fixed_wait
from agents.rl.models.learning_curve import curves_for
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

pytestmark = pytest.mark.benchmark

STREAM = "Digits-ALMA-v0"


def seconds(step: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - start) / times


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("curves", [1, 2])
def test_steps_per_second_of_the_surrogate(benchmark, curves, probability):
    n = 4096
    env = SurrogateVectorEnv(n, curves=curves_for(STREAM, "sm", 4, None) * curves)
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    actions = iter([(generator.random(n) < probability).astype(int) for _ in range(16)] * 100)
    seconds(lambda: env.step(next(actions)), 20)
    each = median(seconds(lambda: env.step(next(actions)), 20) for _ in range(20))
    benchmark.extra_info["steps_per_second"] = n / each
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"\n{len(env.curves)} curves, training at {probability:.0%} of ticks: {n / each:,.0f} steps/s")


@pytest.mark.parametrize("probability", [0.0, 0.02, 0.1, 1.0])
@pytest.mark.parametrize("episodes", [4096, 65_536])
def test_steps_per_second_of_the_second_surrogate(benchmark, episodes, probability):
    env = DecisionSurrogateVectorEnv(episodes, stream=STREAM, width=4, pass_price=(0, 100))
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    trains = [generator.random(episodes) < probability for _ in range(4)]
    actions = itertools.cycle([generator.integers(1, 10, episodes) * train for train in trains])
    each = median(seconds(lambda: env.step(next(actions)), 4) for _ in range(10))
    benchmark.extra_info["steps_per_second"] = episodes / each
    benchmark.pedantic(lambda: None, rounds=1)
    print(
        f"\n{episodes} episodes, all decisions, training at {probability:.0%} of ticks: {episodes / each:,.0f} steps/s"
    )


@pytest.mark.parametrize("episodes", [64, 4096])
def test_steps_per_second_through_stable_baselines3(benchmark, episodes):
    pytest.importorskip("stable_baselines3")
    from agents.rl.learning.sb3 import SurrogateVecEnv

    env = SurrogateVecEnv(SurrogateVectorEnv(episodes, stream=STREAM, width=4))
    env.reset()
    generator = np.random.default_rng(0)
    actions = iter([generator.integers(0, 2, episodes) for _ in range(16)] * 100)
    each = median(seconds(lambda: env.step(next(actions)), 20) for _ in range(20))
    benchmark.extra_info["steps_per_second"] = episodes / each
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"\n{episodes} episodes: {episodes / each:,.0f} steps/s")


def test_the_overhead_of_a_decision(benchmark):
    """Compare a run by a policy with the same run by actions, on ticks without training; the two take turns."""
    width = {"width": 4, "epochs": 1}
    alma = alma_env.make(STREAM)
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", **width).unwrapped

    def by_policy() -> None:
        agent = agents.make("sm", alma, policy=fixed_wait(alma.ticks), **width)
        observation, _ = alma.reset(seed=0, options={"predictor": agent.predictor})
        for _ in range(alma.ticks - 1):
            with alma.meter:
                predictor = agent.observe(observation)
            observation, *_ = alma.step(predictor)

    def by_actions() -> None:
        env.reset(seed=0)
        for _ in range(alma.ticks - 1):
            env.step(0)

    variants = {"policy": by_policy, "actions": by_actions}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(30):
        for name, variant in variants.items():
            times[name].append(seconds(variant, 1) / (alma.ticks - 1))
    added = median(np.subtract(times["actions"], times["policy"])[3:])
    benchmark.extra_info["seconds_per_decision"] = added
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"\na decision adds {1e3 * added:.3f} ms to {1e3 * median(times['policy'][3:]):.3f} ms of a tick")
