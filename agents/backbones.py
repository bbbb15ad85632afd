"""Which network a method trains on a data set: the recipe's backbone in the form that the method can work on."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from agents.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.mixture_networks import MixtureMLP, MixtureVGG19
from agents.networks import MLP, VGG19
from agents.switch import SIZES, Init, SwitchTransformer

# (backbone, shape of an input, width, classes, generator of the weights, the backbone's own keywords) -> network on
# normalised inputs
Body = Callable[..., nn.Module]


def plain(
    backbone: str, shape: tuple[int, ...], width: int, classes: int, generator: torch.Generator, **keywords: Any
) -> nn.Module:
    """The backbone itself."""
    if backbone == "mlp":
        return MLP(math.prod(shape), width, classes, generator=generator)
    if backbone == "switch":
        return switch_transformer(shape, width, classes, generator, **keywords)
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


def switch_transformer(
    shape: tuple[int, ...],
    width: int,
    classes: int,
    generator: torch.Generator,
    *,
    size: str = "tiny",
    capacity_factor: float = 1.0,
    jitter: float = 0.0,
    dropout: float = 0.0,
    expert_dropout: float | None = None,
    init: str = "gpt",
    checkpointing: bool = False,
    copy_noise: float = 0.0,
) -> nn.Module:
    """A Switch Transformer for sequences of `shape`, with `width` experts in each Switch layer.

    Args:
        shape: (T,).
        width: experts to begin with.
        classes: size of the vocabulary.
        generator: of the initial weights.
        size: layers, width and heads by name: tiny, base, large.
        capacity_factor: see `SwitchTransformer` for this and the others.
        jitter: of the router's input in training.
        dropout: of embeddings and residual branches.
        expert_dropout: of the experts' hidden units.
        init: scheme of the initial weights.
        checkpointing: compute activations twice in place of keeping them.
        copy_noise: on the copied rows of the routers at a growth.

    Raises:
        ValueError: a keyword breaks its rule.
    """
    if size not in SIZES:
        raise ValueError(f"size={size!r}: choose one of {', '.join(SIZES)}")
    if width < 1:
        raise ValueError(f"width={width}: on text it is the number of experts in each Switch layer, at least 1")
    return SwitchTransformer(
        classes,
        dataclasses.replace(SIZES[size], context=shape[0]),
        experts=width,
        capacity_factor=capacity_factor,
        jitter=jitter,
        dropout=dropout,
        expert_dropout=expert_dropout,
        init=cast("Init", init),
        checkpointing=checkpointing,
        copy_noise=copy_noise,
        generator=generator,
    )


def keywords_of(backbone: str) -> dict[str, Any]:
    """A backbone's own keywords, with their defaults; only that of text has some."""
    return {name: parameter.default for name, parameter in _own(backbone).items()}


def types_of(backbone: str) -> dict[str, Any]:
    """The types of these keywords."""
    return {name: parameter.annotation for name, parameter in _own(backbone).items()}


def _own(backbone: str) -> dict[str, inspect.Parameter]:
    if backbone != "switch":
        return {}
    parameters = inspect.signature(switch_transformer, eval_str=True).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
