"""Which network a method trains on a data set: the recipe's backbone in the form that the method can work on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import nn

from agents.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.mixture_networks import MixtureMLP, MixtureVGG19
from agents.networks import MLP, VGG19
from agents.switch import SIZES, SwitchTransformer

# (backbone, shape of an input, width, classes, generator of the weights) -> network on normalised inputs
Body = Callable[[str, tuple[int, ...], int, int, torch.Generator], nn.Module]


def plain(backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator) -> nn.Module:
    """The backbone itself."""
    if backbone == "mlp":
        return MLP(math.prod(shape), width, classes, generator=generator)
    if backbone == "switch":
        size = dataclasses.replace(SIZES["tiny"], context=shape[0])
        return SwitchTransformer(classes, size, experts=width, generator=generator)
    return VGG19(width, classes, shape[0], generator=generator)


def mixture(backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator) -> nn.Module:
    """The backbone with mixtures of experts, one expert in each: the same function, with the same weights."""
    if backbone == "mlp":
        return MixtureMLP(math.prod(shape), width, classes, generator=generator)
    return MixtureVGG19(width, classes, shape[0], generator=generator)


def firefly(backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator) -> nn.Module:
    """VGG19 without convolution biases.

    Raises:
        ValueError: another backbone; the paper has Firefly for CIFAR-10 only.
    """
    if backbone != "vgg19":
        raise ValueError(
            f"agent 'ff' with an {backbone.upper()}: Firefly grows the channels of a VGG19, as in the paper; use a "
            "data set with 32×32 images such as CIFAR10, or another growing agent: gens, gmoe"
        )
    return FireflyVGG19([width] * CONVOLUTIONS, classes, shape[0], generator=generator)
