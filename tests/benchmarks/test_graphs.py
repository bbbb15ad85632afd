"""Steps of VGG19 on a GPU: recorded and replayed, against one operation after another; several processes on one GPU.

pytest -m benchmark -s tests/benchmarks/test_graphs.py
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
import torch

from agents.networks.mlp_vgg import VGG19, Normalize, Predictor
from agents.training.engines import engine_named
from agents.training.seeding import stage_generators
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Examples, train_stage
from alma_env.metering import Meter

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

STEPS = 10  # of an epoch


@pytest.mark.parametrize("width", [8, 32, 64])
def test_a_step_of_vgg19_replayed_against_plain(benchmark: Any, width: int) -> None:
    milliseconds = benchmark.pedantic(
        lambda: {
            "plain": milliseconds_per_step("plain", width, 4),
            "graphs": milliseconds_per_step("graphs", width, 30),
        },
        rounds=1,
        iterations=1,
    )
    plain, graphs = milliseconds.values()
    print(f"\nVGG19-{width}: plain {plain:.2f} ms per step, graphs {graphs:.2f} ms, {plain / graphs:.1f} times as fast")


@pytest.mark.parametrize(("width", "processes"), [(8, 10), (64, 6)])
def test_steps_of_several_processes(benchmark: Any, width: int, processes: int) -> None:
    """Run this with and without NVIDIA's Multi-Process Service."""
    rate = benchmark.pedantic(lambda: steps_per_second(width, processes), rounds=1, iterations=1)
    print(f"\nVGG19-{width}, {processes} processes: {rate:.0f} steps per second in all")


def steps_per_second(width: int, processes: int, epochs: int = 100, device: str = "cuda") -> float:
    """Return the sum of the processes' rates; they start within some seconds."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running = [pool.submit(seconds, "graphs", width, epochs, device) for _ in range(processes)]
        return sum(epochs * STEPS / one.result() for one in running)


def milliseconds_per_step(engine: EngineName, width: int, epochs: int) -> float:
    """Return the time of a step, validation and meter included: a long stage less a short one, by the steps between."""
    short, long = (seconds(engine, width, number) for number in (2, 2 + epochs))
    return 1e3 * (long - short) / (epochs * STEPS)


def seconds(engine: EngineName, width: int, epochs: int, device: str = "cuda") -> float:
    """Return the time of a stage; the report of a stage waits for the device."""
    settings = StageSettings(epochs=epochs, weight_decay=1e-4, augmentation="crop_flip")
    body = VGG19(width, 10, generator=torch.Generator().manual_seed(0))
    predictor = Predictor(Normalize(255, (0.5,) * 3, (0.25,) * 3), body).to(device)
    train, valid = examples(STEPS * settings.batch_size), examples(settings.batch_size)
    (own,) = stage_generators(1, 1)
    with Meter():
        train_stage(predictor, train, valid, StageSettings(epochs=2), own, engine=engine_named(engine))  # loads kernels
        start = time.perf_counter()
        train_stage(predictor, train, valid, settings, own, engine=engine_named(engine))
        return time.perf_counter() - start


def examples(n: int) -> Examples:
    generator = torch.Generator().manual_seed(n)
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Examples(x, torch.randint(0, 10, (n,), generator=generator))
