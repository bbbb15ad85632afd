"""Small Switch Transformers for the tests of their modules."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from agents.networks.switch import SwitchTransformer
from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_layer import SwitchLayer
from agents.networks.switch_size import SwitchSize

from ..random_examples import seeded

VOCABULARY = 13
SMALL = SwitchSize(layers=4, width=16, heads=2, context=12)


def new(
    experts: int = 4, size: SwitchSize = SMALL, *, vocabulary: int = VOCABULARY, seed: int = 0, **options: Any
) -> SwitchTransformer:
    return SwitchTransformer(SwitchConfig(vocabulary, size, experts, **options), generator=seeded(seed))


def build(experts: int = 4, seed: int = 0, **options: Any) -> SwitchTransformer:
    """Return a model in float64 and eval mode, with large weights, so that routes and logits differ clearly."""
    model = new(experts, seed=seed, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=seeded(seed + 1)))
    return model


def text(n: int = 3, length: int = 12, seed: int = 5) -> Tensor:
    return torch.randint(0, VOCABULARY, (n, length), generator=seeded(seed))


def layer(experts: int, capacity_factor: float = 1.0, width: int = 4, **options: float) -> SwitchLayer:
    """Return a layer in float64 and eval mode. Its router is a unit matrix: p = softmax(x) if E = d."""
    size = SwitchSize(layers=2, width=width, heads=1)
    model = new(experts, size, vocabulary=2, capacity_factor=capacity_factor, init="switch", **options)
    (switch,) = model.double().eval().mixtures
    with torch.no_grad():
        switch.router.copy_(torch.eye(experts, width))
        for name, parameter in switch.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=seeded(1)))
    return switch


def routed_by(*probabilities: list[float]) -> Tensor:
    """Return one sequence (1, T, E) of tokens with these probabilities in `layer`."""
    return torch.tensor([probabilities], dtype=torch.float64).log()


def grow(model: SwitchTransformer, chosen: list[list[int]], seed: int = 0) -> SwitchTransformer:
    """Return a copy of the model with copies of the chosen experts of each Switch layer."""
    grown, generator = copy.deepcopy(model), seeded(seed)
    for switch, leaves in zip(grown.mixtures, chosen, strict=True):
        for leaf in leaves:
            switch.split(leaf, generator)
    return grown
