"""What the native engine can compute.

C++ reads the weights of a network and nothing else of it. So the layers must be those that C++ assumes.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.firefly_network import FireflyVGG19
from agents.networks.gate_tree import MixtureLayer, Routing
from agents.networks.mixture import MixtureMLP
from agents.networks.mlp_vgg import MLP, VGG19, VGG19_BLOCKS
from agents.networks.uniform_mixture import UniformMixture
from agents.training.settings import StageSettings

# What determines the function of a layer, besides its weights. A layer of another type is not supported.
_ATTRIBUTES: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Flatten: ("start_dim", "end_dim"),
    nn.Identity: (),
    nn.ReLU: (),
    nn.Linear: ("in_features", "out_features"),
    nn.Conv2d: (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"),
    ),
    nn.BatchNorm2d: ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    nn.MaxPool2d: ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"),
}
_CONTAINERS = (MLP, MixtureMLP, VGG19, FireflyVGG19, MixtureLayer, nn.Sequential, nn.ModuleList)
_POOLED = tuple(accumulate(VGG19_BLOCKS))  # numbers of the convolutions before a pooling

Description = tuple[Any, ...]


def supports(body: nn.Module, settings: StageSettings) -> bool:
    """Return whether this engine can compute a stage of a network on a CPU in fp32.

    It computes MLPs, also those of gMoE with a tree of soft gates, and VGG19s, or a uniform mixture of either. The
    members of a mixture must have equal layers and no common weights.
    """
    members = members_of(body)
    layers = _expected_layers(members[0])
    return (
        layers is not None
        and all(_expected_layers(member) == _layers(member) == layers for member in members)
        and len({_splits(member) for member in members}) == 1
        and _is_readable(members)
        and (isinstance(members[0], VGG19) or settings.augmentation == "none")
        and settings.precision == "fp32"
        and settings.optimizer in ("adadelta", "sgd")
        and (settings.updates, settings.accumulation, settings.clip) == (None, 1, None)
    )


def members_of(body: nn.Module) -> list[nn.Module]:
    """Return the members of a uniform mixture; of another network, the network itself."""
    return list(body.members) if type(body) is UniformMixture else [body]


def float_tensors(network: nn.Module) -> list[Tensor]:
    """Return the parameters and then the floating-point buffers, in the order of C++."""
    return [*network.parameters(), *(buffer for buffer in network.buffers() if buffer.is_floating_point())]


def _is_readable(members: list[nn.Module]) -> bool:
    """Return whether all weights are float32, trained, on the CPU, in one layer each, and of one member each."""
    tensors = [tensor for member in members for tensor in float_tensors(member)]
    layers = [part for member in members for part in member.modules() if type(part) in _ATTRIBUTES]
    places = [tensor.data_ptr() for layer in layers for tensor in float_tensors(layer)]
    return (
        all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
        and all(parameter.requires_grad for member in members for parameter in member.parameters())
        and len(set(places)) == len(places) == len(tensors)
    )


def _layers(body: nn.Module) -> list[Description] | None:
    """Return the descriptions of the layers in their order, or None if a part of the network is unknown."""
    parts = list(body.modules())
    if not all(type(part) in _ATTRIBUTES or type(part) in _CONTAINERS for part in parts):
        return None
    return [_description(part) for part in parts if type(part) in _ATTRIBUTES]


def _description(layer: nn.Module) -> Description:
    values = (getattr(layer, name) for name in _ATTRIBUTES[type(layer)])
    return (type(layer), *values, getattr(layer, "bias", None) is not None)


def _expected_layers(body: nn.Module) -> list[Description] | None:
    """Return the layers that C++ assumes for a network with these sizes, or None if there are none."""
    if type(body) in (MLP, MixtureMLP):
        return _layers_of_perceptron(body)
    if type(body) in (VGG19, FireflyVGG19):
        return _layers_of_vgg19(body)
    return None


def _layers_of_perceptron(body: nn.Module) -> list[Description] | None:
    layers = [layer for layer in body.children() if isinstance(layer, nn.Linear | MixtureLayer)]
    if not layers or not isinstance(layers[-1], nn.Linear):
        return None
    *hidden, last = layers
    expected: list[Description] = [(nn.Flatten, 1, -1, False)]
    inputs = None
    for layer in hidden:
        linear = next(part for part in layer.modules() if isinstance(part, nn.Linear))
        inputs = inputs or linear.in_features
        expert = [(nn.Linear, inputs, linear.out_features, True), (nn.ReLU, False)]
        if isinstance(layer, nn.Linear):
            expected += expert
        elif layer.routing == Routing():
            expected += [(nn.Identity, False), *expert * (len(layer.splits) + 1)]
            expected += [(nn.Linear, inputs, 2 * len(layer.splits), True)] if layer.splits else []
        else:
            return None
        inputs = linear.out_features
    return [*expected, (nn.Linear, inputs or last.in_features, last.out_features, True)]


def _layers_of_vgg19(body: nn.Module) -> list[Description] | None:
    assert isinstance(body, VGG19)
    convolutions = body.convolutions
    if len(convolutions) != sum(VGG19_BLOCKS):
        return None
    bias = convolutions[0].bias is not None
    expected: list[Description] = []
    channels = (convolutions[0].in_channels, *body.widths)
    for number, (inputs, outputs) in enumerate(pairwise(channels), 1):
        expected += [
            (nn.Conv2d, inputs, outputs, (3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros", bias),
            (nn.BatchNorm2d, outputs, 1e-5, 0.1, True, True, True),  # the constants of vgg.h
            (nn.ReLU, False),
        ]
        if number in _POOLED:
            expected.append((nn.MaxPool2d, 2, 2, 0, 1, False, False, False))
    return [*expected, (nn.Linear, channels[-1], body.classifier.out_features, True)]


def _splits(body: nn.Module) -> tuple[tuple[int, ...], ...]:
    return tuple(layer.splits for layer in body.children() if isinstance(layer, MixtureLayer))
