"""A small Firefly learner, its examples, and small networks before and after they are over-grown."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.learners.firefly.firefly import Firefly
from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.networks.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.networks.mlp_vgg import Normalize, Predictor
from agents.training.settings import StageSettings
from agents.training.trainer import Trainer

from ...random_examples import examples, seeded

SETTINGS = StageSettings(epochs=2, batch_size=8, learning_rate=0.05, augmentation="crop_flip", weight_decay=1e-4)
WIDTH, CANDIDATES = 3, 2
TRAIN, VALID = examples(20, (3, 32, 32)), examples(6, (3, 32, 32), seed=5)
MIXED = (3, 2, 4, 2, 3, 3, 2, 4, 3, 2, 2, 3, 4, 2, 3, 2)
FLAT = (0,) * 16
DEEP = (1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1)
DEPTHS = pytest.mark.parametrize(("residuals", "depth"), [(FLAT, False), (FLAT, True), (DEEP, True), (DEEP, False)])


def backbone(generator: torch.Generator) -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), FireflyVGG19([WIDTH] * 16, 10, generator=generator))


def firefly(**options: Any) -> Firefly:
    return Firefly(backbone, Trainer(SETTINGS, options.pop("seed", 3)), **{"candidates": CANDIDATES, **options})


def images(n: int = 4, seed: int = 9) -> torch.Tensor:
    return torch.randn(n, 3, 32, 32, dtype=torch.float64, generator=seeded(seed))


def active_network(residuals: tuple[int, ...] = FLAT) -> FireflyVGG19:
    """Return a float64 network in eval mode with BatchNorm statistics of images, so that every layer is active."""
    network = FireflyVGG19(MIXED, 10, residuals=residuals, generator=seeded(1)).double()
    for norm in network.norms:
        norm.momentum = 1.0
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5, generator=seeded(len(norm.weight)))
        torch.nn.init.uniform_(norm.bias, -0.2, 0.6, generator=seeded(len(norm.weight)))
    with torch.no_grad():
        network.train()(images(16, seed=2))
    return network.eval()


def overgrow(network: FireflyVGG19, candidates: int = CANDIDATES, *, depth: bool = False) -> OvergrownVGG19:
    generators = [seeded(10 + layer) for layer in range(2 * CONVOLUTIONS + 1)]
    return OvergrownVGG19(network, candidates, generators, depth=depth)


def scale_up(overgrown: OvergrownVGG19) -> None:
    """Scale up the outgoing weights and the residual layers, so that they have an effect in every layer."""
    for parameter in [layer.outgoing for layer in overgrown.convolutions] + [overgrown.outgoing]:
        parameter.data.mul_(30)
    for parameter in overgrown.residuals.parameters():
        parameter.data.mul_(10)
