"""The native engine: its build, two threads against one, and the error of a step of VGG19 (also gMoE's).

pytest -m benchmark -s tests/benchmarks/test_native.py
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.mixture import MixtureVGG19, build_mixture
from agents.networks.mlp_vgg import VGG19, Normalize, Predictor
from agents.training.engines import engine_named
from agents.training.seeding import StageGenerators
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Examples, train_stage

from ..agents.random_examples import examples, seeded

pytestmark = pytest.mark.benchmark

NORMALIZE = Normalize(255, (0.4, 0.5, 0.6), (0.25, 0.25, 0.25))


def vgg19_of_experts(width: int, experts: int) -> nn.Module:
    """Return the VGG19 of `experts` experts per mixture; 0: the VGG19 without mixtures."""
    if not experts:
        return VGG19(width, 10, generator=seeded(0))
    return build_mixture(
        lambda own: Predictor(NORMALIZE, MixtureVGG19(width, 10, generator=own)), seeded(0), experts
    ).body


NETWORKS = [(4, 0), (8, 0), (16, 0), (32, 0), (4, 4), (8, 4), (4, 10), (8, 10)]  # width, experts


def test_the_build_and_the_start_from_the_cache(benchmark: Any, tmp_path: Path) -> None:
    code = (
        "import time; from agents.training.native import library; start = time.perf_counter(); "
        "assert library.library() is not None; print(time.perf_counter() - start)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}

    def start() -> float:
        return float(
            subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
        )

    built = benchmark.pedantic(start, rounds=1, iterations=1)
    print(f"\nbuild {built:.1f} s, start from the cache {1e3 * start():.0f} ms")


@pytest.mark.parametrize(("width", "experts"), NETWORKS)
def test_two_threads_against_one(benchmark: Any, width: int, experts: int) -> None:
    # The paper's stages have 400 mini-batches and more; a stage of a few would measure how its memory is allocated.
    settings = StageSettings(epochs=20, batch_size=128, weight_decay=1e-4, augmentation="crop_flip")
    seconds: dict[int, list[float]] = {1: [], 2: []}
    before = torch.get_num_threads()

    def take_turns() -> None:
        for _ in range(4):
            for threads, into in seconds.items():
                torch.set_num_threads(threads)
                start = time.perf_counter()  # not CPU time: threads share the work
                run("native", vgg19_of_experts(width, experts), settings, examples(512, (3, 32, 32), seed=3))
                into.append(time.perf_counter() - start)

    try:
        benchmark.pedantic(take_turns, rounds=1, iterations=1)
    finally:
        torch.set_num_threads(before)
    one, two = (median(values[1:]) for values in seconds.values())
    print(
        f"\nVGG19-{width}, {experts} experts: one thread {1e3 * one:.0f} ms, two threads {one / two:.2f} times as fast"
    )


@pytest.mark.parametrize(("width", "experts"), NETWORKS)
def test_the_error_of_a_step_against_float64(benchmark: Any, width: int, experts: int) -> None:
    body, part = vgg19_of_experts(width, experts), examples(128, (3, 32, 32), seed=3)
    exact = copy.deepcopy(body).double()
    F.cross_entropy(exact(NORMALIZE(part.x).double()), part.y).backward()
    true = flat([parameter.grad for parameter in exact.parameters() if parameter.grad is not None])
    settings = StageSettings(epochs=1, batch_size=128, learning_rate=1.0, momentum=0.0)

    def error(engine: EngineName) -> float:
        step = flat(list(body.parameters())) - flat(list(run(engine, body, settings, part).parameters()))
        return float((step - true).detach().norm() / true.norm())

    native, plain = benchmark.pedantic(lambda: (error("native"), error("plain")), rounds=1, iterations=1)
    print(f"\nVGG19-{width}, {experts} experts: relative error of a step, native {native:.1e}, plain {plain:.1e}")


def run(engine: EngineName, body: nn.Module, settings: StageSettings, part: Examples) -> nn.Module:
    predictor = Predictor(NORMALIZE, copy.deepcopy(body))
    train_stage(predictor, part, part, settings, StageGenerators(seeded(1), seeded(2)), engine=engine_named(engine))
    return predictor.body


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])
