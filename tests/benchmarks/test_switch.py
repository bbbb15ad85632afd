"""Training steps of the Switch Transformer against those of a dense GPT-2, and the overhead of the meter.

The ratios compare CPU times of one thread within one process. The steps take turns, so a drifting speed of the machine
affects all of them.

OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_switch.py
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.switch import SwitchTransformer
from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_size import SIZES, SwitchSize
from agents.sweeps.process_setup import keep_freed_memory
from agents.training.settings import StageSettings
from agents.training.step import new_optimizer, train_mini_batch
from alma_env.metering import Meter

pytestmark = pytest.mark.benchmark

Step = Callable[[Tensor, Tensor], object]


@pytest.mark.parametrize(
    ("name", "vocabulary", "sequences", "tokens"),
    [("tiny", 8_000, 8, 512), ("tiny", 50_257, 4, 512), ("base", 8_000, 1, 512), ("base", 50_257, 1, 512)],
)
def test_four_experts_and_one_against_the_dense_gpt2_of_transformers(
    benchmark: Any,
    dense_gpt2: Callable[[int, SwitchSize], nn.Module],
    name: str,
    vocabulary: int,
    sequences: int,
    tokens: int,
) -> None:
    size = dataclasses.replace(SIZES[name], context=tokens)
    steps = {
        "GPT-2": gpt2_step(dense_gpt2(vocabulary, size).train()),
        "1 expert": switch_step(vocabulary, size, 1),
        "4 experts": switch_step(vocabulary, size, 4),
    }
    times = in_turns(steps, vocabulary, (sequences, tokens), turns=8)
    ratios = {
        step: median(dense / own for dense, own in zip(times["GPT-2"], times[step], strict=True)) for step in times
    }
    rates = {step: sequences * tokens / median(times[step]) for step in times}
    benchmark.extra_info.update(ratios=ratios, rates=rates)
    benchmark.pedantic(lambda: None, rounds=1)
    summary = ", ".join(f"{step} {rates[step]:,.0f} ({ratios[step]:.2f} x)" for step in steps)
    print(f"\n{name}, {vocabulary} words, {sequences} x {tokens} tokens: tokens/s in training {summary}")


@pytest.mark.parametrize(
    ("size", "vocabulary", "sequences", "tokens"),
    [
        pytest.param(SwitchSize(layers=2, width=32, heads=2), 256, 4, 32, id="smallest"),
        pytest.param(SIZES["tiny"], 2_000, 4, 64, id="tiny-256-tokens"),
        pytest.param(SIZES["tiny"], 8_000, 8, 128, id="tiny-1024-tokens"),
    ],
)
def test_a_step_with_the_meter_against_no_meter_and_against_counting_in_full(
    benchmark: Any, size: SwitchSize, vocabulary: int, sequences: int, tokens: int
) -> None:
    model, optimizer, settings = switch(vocabulary, size, 4)

    def metered(step: Callable[..., None]) -> Step:
        meter = Meter()

        def run(x: Tensor, y: Tensor) -> float:
            with meter:
                start = time.process_time()
                step(model, optimizer, x, y, settings)
                return time.process_time() - start  # without the provenance, which is recorded once per stage

        return run

    steps = {
        "off": switch_step(vocabulary, size, 4, (model, optimizer, settings)),
        "on": metered(train_mini_batch),
        "in full": metered(train_mini_batch.fn),
    }
    times = in_turns(steps, vocabulary, (sequences, tokens), turns=40)
    ratios = {step: median(own / off for off, own in zip(times["off"], times[step], strict=True)) for step in times}
    benchmark.extra_info.update(ratios=ratios)
    benchmark.pedantic(lambda: None, rounds=1)
    print(
        f"\nwidth {size.width}, {vocabulary} words, {sequences} x {tokens} tokens: {1e3 * median(times['off']):.1f} ms "
        f"a step; with the meter {ratios['on']:.3f} x, each step counted in full {ratios['in full']:.3f} x"
    )


def in_turns(steps: dict[str, Step], vocabulary: int, shape: tuple[int, int], turns: int) -> dict[str, list[float]]:
    """Return the seconds of each step by turn, without the first three turns, which count and allocate."""
    keep_freed_memory()  # like the command line
    generator = torch.Generator().manual_seed(0)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(turns + 3):
        x = torch.randint(0, vocabulary, shape, generator=generator)
        for name, step in steps.items():
            start = time.process_time()
            own = step(x, x.roll(-1, 1))
            times[name].append(own if isinstance(own, float) else time.process_time() - start)
    return {name: rounds[3:] for name, rounds in times.items()}


def switch(
    vocabulary: int, size: SwitchSize, experts: int
) -> tuple[SwitchTransformer, torch.optim.Optimizer, StageSettings]:
    config = SwitchConfig(vocabulary, size, experts)
    model = SwitchTransformer(config, generator=torch.Generator().manual_seed(0)).train()
    settings = StageSettings(optimizer="adam", learning_rate=1e-4)
    return model, new_optimizer(model, settings)[0], settings


def switch_step(vocabulary: int, size: SwitchSize, experts: int, parts: tuple[Any, ...] | None = None) -> Step:
    model, optimizer, settings = parts or switch(vocabulary, size, experts)
    return lambda x, y: train_mini_batch(model, optimizer, x, y, settings)


def gpt2_step(model: nn.Module) -> Step:
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
