"""The network that a method trains on a data set: the recipe's backbone in the form that the method needs."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from agents.networks.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.networks.mixture import MixtureMLP, MixtureVGG19
from agents.networks.mlp_vgg import MLP, VGG19
from agents.networks.switch import SwitchTransformer
from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_size import SIZES

# (backbone, shape of an input, width, classes, generator of the weights, the backbone's own keywords) -> network on
# normalised inputs
Body = Callable[..., nn.Module]


def plain(
    backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator, **keywords: Any
) -> nn.Module:
    """Return the backbone itself."""
    if backbone == "mlp":
        return MLP(math.prod(shape), width, classes, generator=generator)
    if backbone == "switch":
        return switch_transformer(shape, width, classes, generator, **keywords)
    return VGG19(width, classes, shape[0], generator=generator)


def mixture(backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator) -> nn.Module:
    """Return the backbone with mixtures of one expert each; the function and the weights equal those of `plain`."""
    if backbone == "mlp":
        return MixtureMLP(math.prod(shape), width, classes, generator=generator)
    return MixtureVGG19(width, classes, shape[0], generator=generator)


def firefly(backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator) -> nn.Module:
    """Return a VGG19 without convolution biases; ValueError for other backbones, as the paper uses it for CIFAR-10."""
    if backbone != "vgg19":
        raise ValueError(
            f"agent 'ff' with an {backbone.upper()}: Firefly grows the channels of a VGG19, as in the paper; use "
            "CIFAR10 or CIFAR100, whose recipe has a VGG19, or another growing agent: gens, gmoe"
        )
    return FireflyVGG19([width] * CONVOLUTIONS, classes, shape[0], generator=generator)


def switch_transformer(
    shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator, *, size: str = "tiny", **keywords: Any
) -> nn.Module:
    """Return a Switch Transformer for sequences of `shape` (T,) with `width` experts in each Switch layer.

    `classes` is the size of the vocabulary; `keywords` are those of `SwitchConfig`.

    Args:
        size: of the network: tiny, base or large.

    Raises:
        ValueError: a keyword breaks its rule.
    """
    if size not in SIZES:
        raise ValueError(f"size={size!r}: must be one of {', '.join(SIZES)}")
    if width < 1:
        raise ValueError(f"width={width}: on text it is the number of experts in each Switch layer, at least 1")
    in_size = dataclasses.replace(SIZES[size], context=shape[0])
    return SwitchTransformer(SwitchConfig(classes, in_size, width, **keywords), generator=generator)


def own_keywords(backbone: str) -> dict[str, inspect.Parameter]:
    """Return the backbone's own keywords, with defaults and types; only the backbone of text has any."""
    if backbone != "switch":
        return {}
    return {
        name: parameter
        for function in (switch_transformer, SwitchConfig)
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
