"""A stage against a training loop as in a tutorial: ratios of CPU times; the loops take turns within one process.

ALMA_DATA=… OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_training_loop.py
"""

from __future__ import annotations

import copy
import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import alma_env
from agents.networks.mixture import MixtureVGG19, build_mixture
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.engines import engine_named
from agents.training.seeding import StageGenerators
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Examples, train_stage
from alma_env.data import image_files

pytestmark = pytest.mark.benchmark

RealData = Callable[..., alma_env.DataSet]
MegaBatch = tuple[Examples, Examples]

MNIST = StageSettings(epochs=100, optimizer="adadelta", learning_rate=1.0)
CIFAR10 = StageSettings(epochs=2, learning_rate=0.01, weight_decay=1e-4, augmentation="crop_flip", validation_batch=128)


@pytest.mark.parametrize("wait", [1, 10])
@pytest.mark.parametrize("width", [4, 32, 64])
def test_a_stage_on_mnist_against_a_tutorial_loop_over_a_tensor_dataset(
    benchmark: Any, real_data: RealData, width: int, wait: int
) -> None:
    data = real_data("MNIST")
    stages = mega_batches(data, ticks=500, wait=wait, count=8 if wait == 1 else 4)
    plain, native = mlp(data, width), mlp(data, width)
    tutorial_network = mlp(data, width).body

    def tutorial(stage: int) -> None:
        train, valid = (TensorDataset(plain.normalize(part.x), part.y) for part in stages[stage])
        optimizer = torch.optim.Adadelta(tutorial_network.parameters())
        tutorial_loop(tutorial_network, optimizer, train, valid, MNIST.epochs)

    compare(
        benchmark,
        f"MNIST h={width} w={wait}",
        {
            "tutorial": tutorial,
            "plain": lambda stage: run(plain, stages[stage], MNIST, "plain"),
            "native": lambda stage: run(native, stages[stage], MNIST, "native"),
        },
        len(stages),
        MNIST.epochs,
    )


@pytest.mark.parametrize("width", [4, 8, 16, 32])
def test_a_stage_on_cifar10_against_a_tutorial_loop_with_a_transform_per_image(
    benchmark: Any, real_data: RealData, width: int
) -> None:
    data = real_data("CIFAR10")
    image_files.datasets()  # makes torchvision importable on a CPU build of torch
    transforms = importlib.import_module("torchvision.transforms")
    stages = mega_batches(data, ticks=100, wait=1, count=5)
    ours, bf16, native = (vgg19(data, width) for _ in range(3))
    tutorial_network = vgg19(data, width).body.to(memory_format=torch.contiguous_format)
    normalise = [transforms.ToTensor(), transforms.Normalize(data.mean, data.std)]
    crop_flip = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    training, testing = transforms.Compose(crop_flip + normalise), transforms.Compose(normalise)

    def tutorial(stage: int) -> None:
        train, valid = stages[stage]
        optimizer = torch.optim.SGD(tutorial_network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        tutorial_loop(tutorial_network, optimizer, Pictures(train, training), Pictures(valid, testing), CIFAR10.epochs)

    compare(
        benchmark,
        f"CIFAR-10 c={width}",
        {
            "tutorial": tutorial,
            "fp32": lambda stage: run(ours, stages[stage], CIFAR10, "plain"),
            "native": lambda stage: run(native, stages[stage], CIFAR10, "native"),
            "bf16": lambda stage: run(
                bf16, stages[stage], StageSettings(**vars(CIFAR10) | {"precision": "bf16"}), "plain"
            ),
        },
        len(stages),
        CIFAR10.epochs,
    )


@pytest.mark.parametrize("ticks", [352, 100], ids=["one mini-batch", "a tick"])
@pytest.mark.parametrize("experts", [1, 4, 10])
@pytest.mark.parametrize("width", [4, 8])
def test_a_stage_of_gmoe_on_cifar10_against_the_plain_engine(
    benchmark: Any, real_data: RealData, width: int, experts: int, ticks: int
) -> None:
    data = real_data("CIFAR10")
    stages = mega_batches(data, ticks=ticks, wait=1, count=5)  # 352 ticks: 128 examples to train on
    plain, native = (
        build_mixture(partial(mixture_vgg19, data, width), torch.Generator().manual_seed(0), experts) for _ in range(2)
    )
    compare(
        benchmark,
        f"gMoE c={width}, {experts} experts, {len(stages[0][0])} examples",
        {
            "plain": lambda stage: run(plain, stages[stage], CIFAR10, "plain"),
            "native": lambda stage: run(native, stages[stage], CIFAR10, "native"),
        },
        len(stages),
        CIFAR10.epochs,
    )


class Pictures(Dataset[tuple[Tensor, int]]):
    """A data set like torchvision's: one PIL image per example, transformed on access."""

    def __init__(self, examples: Examples, transform: Callable[[Any], Tensor]) -> None:
        self.images = examples.x.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = examples.y.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image  # comes with torchvision

        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def tutorial_loop(
    network: nn.Module, optimizer: torch.optim.Optimizer, train: Dataset[Any], valid: Dataset[Any], epochs: int
) -> None:
    batches: Iterable[Any] = DataLoader(train, batch_size=128, shuffle=True)
    valid_batches: Iterable[Any] = DataLoader(valid, batch_size=128)
    best_loss, best_state = float("inf"), None
    for _ in range(epochs):
        network.train()
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
        network.eval()
        loss = 0.0
        with torch.no_grad():
            for x, y in valid_batches:
                loss += F.cross_entropy(network(x), y, reduction="sum").item()
        if loss < best_loss:
            best_loss, best_state = loss, copy.deepcopy(network.state_dict())
    assert best_state is not None
    network.load_state_dict(best_state)


def compare(benchmark: Any, title: str, loops: dict[str, Callable[[int], object]], stages: int, epochs: int) -> None:
    """Run all loops in turns, stage by stage; the first stage is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in loops}

    def take_all_turns() -> None:
        for stage in range(stages):
            for name, loop in loops.items():
                with cpu_seconds(seconds[name]):
                    loop(stage)

    benchmark.pedantic(take_all_turns, rounds=1, iterations=1)
    first = next(iter(loops))
    print(f"\n{title:20}", end="")
    for name in loops:
        ratios = [a / b for a, b in zip(seconds[first][1:], seconds[name][1:], strict=True)]
        benchmark.extra_info[name] = {
            "milliseconds_per_epoch": 1e3 * median(seconds[name][1:]) / epochs,
            "times_faster_than_" + first: median(ratios),
            "first_stage_seconds": seconds[name][0],
        }
        print(f"{name} {1e3 * median(seconds[name][1:]) / epochs:8.2f} ms/epoch {median(ratios):5.2f} x   ", end="")
    print()


@contextmanager
def cpu_seconds(into: list[float]) -> Iterator[None]:
    start = time.process_time()
    yield
    into.append(time.process_time() - start)


def run(predictor: Predictor, stage: MegaBatch, settings: StageSettings, engine: EngineName) -> None:
    order, augment = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    train_stage(predictor, *stage, settings, StageGenerators(order, augment), engine=engine_named(engine))


def mega_batches(data: alma_env.DataSet, *, ticks: int, wait: int, count: int) -> list[MegaBatch]:
    """Return the gathered mega-batches of the first `count` stages."""
    size = len(data.train_y) // ticks
    order = np.random.default_rng(0).permutation(len(data.train_y))
    stages = []
    for stage in range(count):
        index = order[stage * wait * size : (stage + 1) * wait * size]
        cut = wait * (size // 10)
        stages.append((part(data, index[cut:]), part(data, index[:cut])))
    return stages


def part(data: alma_env.DataSet, index: np.ndarray) -> Examples:
    return Examples(torch.from_numpy(data.train_x[index]), torch.from_numpy(data.train_y[index]))


def mlp(data: alma_env.DataSet, width: int) -> Predictor:
    body = MLP(784, width, data.classes, generator=torch.Generator().manual_seed(0))
    return Predictor(Normalize(data.scale, data.mean, data.std), body)


def vgg19(data: alma_env.DataSet, width: int) -> Predictor:
    body = VGG19(width, data.classes, generator=torch.Generator().manual_seed(0))
    return Predictor(Normalize(data.scale, data.mean, data.std), body)


def mixture_vgg19(data: alma_env.DataSet, width: int, generator: torch.Generator) -> Predictor:
    body = MixtureVGG19(width, data.classes, generator=generator)
    return Predictor(Normalize(data.scale, data.mean, data.std), body)
