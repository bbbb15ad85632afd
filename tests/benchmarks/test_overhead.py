"""The overhead of the environment and its meter on a training loop, as ratios within one process.

The loop without them trains the same learner on the same stream, with a plain evaluation after each training. The
benchmark measures CPU time of one thread. The two loops take turns, mega-batch by mega-batch, so a drifting speed of
the machine affects both.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import agents
from agents.sweeps.process_setup import keep_freed_memory
from alma_env import AlmaEnv

pytestmark = pytest.mark.benchmark


def evaluate(predictor, x, y, batch_size) -> float:
    """Evaluate as a simple training loop does."""
    predictor.eval()
    wrong = 0
    with torch.no_grad():
        for start in range(0, len(y), batch_size):
            logits = predictor(torch.from_numpy(x[start : start + batch_size].copy()))
            wrong += int((logits.argmax(1).numpy() != y[start : start + batch_size]).sum())
    return wrong / len(y)


@pytest.mark.parametrize(
    ("data", "ticks", "test_images", "turns", "agent"),
    [
        pytest.param("MNIST", 500, 10_000, 80, {"engine": "native"}, id="MLP-32-native"),
        pytest.param("MNIST", 500, 10_000, 12, {"engine": "plain"}, id="MLP-32-plain"),
        # Other processes disturb long turns, so there are many short ones. With 2 epochs, the overhead per stage counts
        # 50-fold.
        pytest.param("CIFAR10", 100, 1_000, 25, {"epochs": 2}, id="VGG19-32"),
    ],
)
def test_a_loop_with_environment_and_meter_against_the_same_loop_without_them(
    benchmark, real_data, data, ticks, test_images, turns, agent
):
    keep_freed_memory()  # like the command line
    data = real_data(data)
    data = dataclasses.replace(data, test_x=data.test_x[:test_images], test_y=data.test_y[:test_images], source=None)
    env = AlmaEnv(data, ticks)
    metered = agents.make("sm", env, width=32, **agent)
    bare = agents.make("sm", env, width=32, **agent)
    observation, _ = env.reset(seed=0, options={"predictor": metered.predictor})
    with_env, without = [], []
    for tick in range(1, turns + 1):
        own = env.megabatch(tick)
        start = time.process_time()
        predictor = bare.observe(own)
        error = evaluate(predictor, env.data.test_x, env.data.test_y, env.evaluation_batch_size)
        without.append(time.process_time() - start)
        start = time.process_time()
        with env.meter:
            predictor = metered.observe(observation)
        observation, *_ = env.step(predictor)
        with_env.append(time.process_time() - start)
        assert env.ledger[tick].error == error  # the same computation to the last bit
    # The first tick is left out: it counts the steps that are charged later, or builds the engine.
    ratios = np.array(with_env[1:]) / np.array(without[1:])
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    benchmark.extra_info.update(ratio=middle, quartiles=(low, high), with_env=with_env, without=without)
    benchmark.pedantic(lambda: None, rounds=1)
    print(
        f"\n{data.name} width 32 {agent}: with environment and meter {middle:.3f} x the loop without them "
        f"(quartiles {low:.3f} to {high:.3f}; fastest turns {min(with_env[1:]) / min(without[1:]):.3f} x)"
    )


def test_a_tick_without_training(benchmark, real_data):
    env = AlmaEnv(real_data("MNIST"), 500)
    agent = agents.make("sm", env, width=64, wait=500)
    env.reset(seed=0, options={"predictor": agent.predictor})
    benchmark.pedantic(lambda: env.step(None), rounds=200, warmup_rounds=5)
    none = benchmark.stats.stats.median
    times = []
    for _ in range(200):
        start = time.perf_counter()
        env.step(agent.predictor)
        times.append(time.perf_counter() - start)
    benchmark.extra_info.update(milliseconds_none=1e3 * none, milliseconds_same=1e3 * statistics.median(times))
    print(f"\ntick without training: None {1e3 * none:.2f} ms, the same module {1e3 * statistics.median(times):.2f} ms")


@pytest.mark.parametrize(
    ("data", "ticks", "turns", "agent"),
    [
        pytest.param("MNIST", 500, 100, {"width": 32, "epochs": 5}, id="MLP-32"),
        pytest.param("CIFAR10", 100, 5, {"width": 8, "epochs": 1}, id="VGG19-8"),
    ],
)
def test_a_step_against_the_bare_forward_passes(benchmark, real_data, data, ticks, turns, agent):
    """Measure a step after each training, against the forward passes of its predictor on the same raw batches.

    The two take turns in coming first after the training, because the first one finds less in the processor's cache.
    """
    keep_freed_memory()  # like the command line
    env = AlmaEnv(real_data(data), ticks)
    learner = agents.make("sm", env, **agent)
    observation, _ = env.reset(seed=0, options={"predictor": learner.predictor})
    raw = [
        torch.from_numpy(part.copy())
        for part in np.split(env.data.test_x, len(env.data.test_x) // env.evaluation_batch_size)
    ]
    steps, passes = [], []

    def run_passes(predictor) -> None:
        predictor.eval()
        start = time.process_time()
        with torch.no_grad():
            for batch in raw:
                predictor(batch)
        passes.append(time.process_time() - start)

    for turn in range(turns):
        with env.meter:
            predictor = learner.observe(observation)
        if turn % 2:
            run_passes(predictor)
        start = time.process_time()
        observation, *_ = env.step(predictor)
        steps.append(time.process_time() - start)
        if not turn % 2:
            run_passes(predictor)
    low, middle, high = np.quantile(np.array(steps[1:]) / np.array(passes[1:]), [0.25, 0.5, 0.75])
    step, bare = statistics.median(steps), statistics.median(passes)
    benchmark.extra_info.update(ratio=middle, quartiles=(low, high), steps=steps, passes=passes)
    benchmark.pedantic(lambda: None, rounds=1)
    print(
        f"\n{data} {agent}: step {1e3 * step:.2f} ms, forward passes {1e3 * bare:.2f} ms, ratio {middle:.3f} "
        f"(quartiles {low:.3f} to {high:.3f})"
    )


def test_loading_cifar10_and_building_the_stream(benchmark, real_data):
    """Measure seconds and peak memory in a new process."""
    real_data("CIFAR10")
    code = (
        "import time; t = time.perf_counter(); import alma_env; i = time.perf_counter();"
        "env = alma_env.make('CIFAR10-ALMA-v0', download=False); env.reset(seed=0);"
        "e = time.perf_counter(); peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0];"
        "print(i - t, e - i, int(peak) / 1024)"
    )
    rows = []

    def run() -> None:
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        rows.append([float(word) for word in out.split()])

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    importing, loading, memory = np.median(np.array(rows[1:]), axis=0)
    benchmark.extra_info.update(import_seconds=importing, load_seconds=loading, peak_mebibytes=memory)
    print(f"\nimport {importing:.2f} s, load CIFAR-10 and build the stream {loading:.2f} s, peak {memory:.0f} MiB")
