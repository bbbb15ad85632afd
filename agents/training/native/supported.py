"""What the native engine can compute.

C++ reads the weights of a network and nothing else of it. So the layers must be those that C++ assumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.firefly_network import FireflyVGG19
from agents.networks.gate_tree import MixtureLayer
from agents.networks.mixture import MixtureMLP, MixtureVGG19
from agents.networks.mlp_vgg import MLP, VGG19, VGG19_BLOCKS
from agents.networks.uniform_mixture import UniformMixture
from agents.training.settings import StageSettings
from agents.training.unmodified import is_unmodified

# What determines the function of a layer, besides its weights.
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
    nn.AdaptiveAvgPool2d: ("output_size",),
}
Description = tuple[Any, ...]
_FLATTEN: Description = (nn.Flatten, 1, -1, False)


def supports(body: nn.Module, settings: StageSettings) -> bool:
    """Return whether this engine can compute a stage of a network on a CPU in fp32.

    It computes MLPs and VGG19s, also those of gMoE with soft gates, or a uniform mixture of either. The members of a
    uniform mixture must have equal layers and no common weights. No module or tensor of the network may have hooks,
    parametrizations or functions of its own (`is_unmodified`).
    """
    if not is_unmodified(body):
        return False
    members = members_of(body)
    layers = _expected_layers(members[0])
    return (
        layers is not None
        and all(_expected_layers(member) == _layers(member) == layers for member in members)
        and len({(splits_of(member), has_trees(member)) for member in members}) == 1
        and _is_readable(members)
        and (isinstance(members[0], VGG19 | MixtureVGG19) or settings.augmentation == "none")
        and settings.precision == "fp32"
        and settings.optimizer in ("adadelta", "sgd")
        and (settings.updates, settings.accumulation, settings.clip) == (None, 1, None)
    )


def members_of(body: nn.Module) -> list[nn.Module]:
    """Return the members of a uniform mixture; of another network, the network itself."""
    return list(body.members) if type(body) is UniformMixture else [body]


def float_tensors(network: nn.Module) -> list[Tensor]:
    """Return the parameters and then the floating-point buffers, in the order of C++; a shared one several times."""
    parts = list(network.modules())  # parameters() and buffers() take three times as long
    parameters = [tensor for part in parts for tensor in part._parameters.values()]
    buffers = [tensor for part in parts for tensor in part._buffers.values()]
    return [tensor for tensor in (*parameters, *buffers) if tensor is not None and tensor.is_floating_point()]


def layers_of(body: nn.Module) -> Sequence[nn.Module]:
    """Return the hidden layers of an MLP, or the blocks of a VGG19, each up to its pooling; some can be mixtures."""
    if isinstance(body, MLP | MixtureMLP):
        return [layer for layer in body if isinstance(layer, nn.Linear | MixtureLayer)][:-1]
    if isinstance(body, MixtureVGG19):
        return list(body)[:-2]
    assert isinstance(body, VGG19)
    ends = [number for number, layer in enumerate(body.features, 1) if isinstance(layer, nn.MaxPool2d)]
    return [body.features[start:end] for start, end in pairwise([0, *ends])]


def expert_of(layer: nn.Module) -> nn.Module:
    """Return the first expert of a mixture; of another layer or block, itself."""
    return layer.experts[0] if isinstance(layer, MixtureLayer) else layer


def convolutions_of(layer: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions of a block of a VGG19; of a mixture, those of its first expert."""
    return [part for part in expert_of(layer).modules() if isinstance(part, nn.Conv2d)]


def splits_of(body: nn.Module) -> tuple[tuple[int, ...], ...]:
    """Return the splits of each of the `layers_of` a network; none of a layer that is no mixture."""
    return tuple(layer.splits if isinstance(layer, MixtureLayer) else () for layer in layers_of(body))


def has_trees(body: nn.Module) -> bool:
    """Return whether the gates of a network's mixtures are trees."""
    return all(layer.routing.tree for layer in _mixtures(body))


def _mixtures(body: nn.Module) -> list[MixtureLayer]:
    return [layer for layer in body.modules() if isinstance(layer, MixtureLayer)]


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


def _layers(body: nn.Module) -> list[Description]:
    """Return the descriptions of the layers in their order. The other modules are containers (`is_unmodified`)."""
    return [_description(part) for part in body.modules() if type(part) in _ATTRIBUTES]


def _description(layer: nn.Module) -> Description:
    values = (getattr(layer, name) for name in _ATTRIBUTES[type(layer)])
    return (type(layer), *values, getattr(layer, "bias", None) is not None)


def _expected_layers(body: nn.Module) -> list[Description] | None:
    """Return the layers that C++ assumes for a network with these sizes, or None if there are none."""
    routings = {layer.routing for layer in _mixtures(body)}
    if any(routing.gating != "soft" for routing in routings) or len({routing.tree for routing in routings}) > 1:
        return None
    if type(body) in (MLP, MixtureMLP):
        return _layers_of_perceptron(body)
    if type(body) in (VGG19, FireflyVGG19, MixtureVGG19):
        return _layers_of_vgg19(body)
    return None


def _layers_of_perceptron(body: nn.Module) -> list[Description] | None:
    *_, last = body.children()
    if not isinstance(last, nn.Linear):
        return None
    expected: list[Description] = [_FLATTEN]
    inputs = None
    for layer in layers_of(body):
        linear = next(part for part in layer.modules() if isinstance(part, nn.Linear))
        inputs = inputs or linear.in_features
        hidden = [(nn.Linear, inputs, linear.out_features, True), (nn.ReLU, False)]
        expected += _with_experts(layer, hidden, [(nn.Identity, False)], inputs)
        inputs = linear.out_features
    return [*expected, (nn.Linear, inputs or last.in_features, last.out_features, True)]


def _layers_of_vgg19(body: nn.Module) -> list[Description] | None:
    layers, (*_, classifier) = layers_of(body), body.children()
    if tuple(len(convolutions_of(layer)) for layer in layers) != VGG19_BLOCKS or not isinstance(classifier, nn.Linear):
        return None
    first = convolutions_of(layers[0])[0]
    expected: list[Description] = []
    inputs = first.in_channels
    for layer in layers:
        channels = (inputs, *(convolution.out_channels for convolution in convolutions_of(layer)))
        block = _layers_of_block(channels, first.bias is not None)
        expected += _with_experts(layer, block, [(nn.AdaptiveAvgPool2d, 4, False), _FLATTEN], 16 * inputs)
        inputs = channels[-1]
    expected += [_FLATTEN] if isinstance(body, MixtureVGG19) else []
    return [*expected, (nn.Linear, inputs, classifier.out_features, True)]


def _layers_of_block(channels: Sequence[int], bias: bool) -> list[Description]:
    layers: list[Description] = []
    for inputs, outputs in pairwise(channels):
        layers += [
            (nn.Conv2d, inputs, outputs, (3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros", bias),
            (nn.BatchNorm2d, outputs, 1e-5, 0.1, True, True, True),  # the constants of convolution_layer.h
            (nn.ReLU, False),
        ]
    return [*layers, (nn.MaxPool2d, 2, 2, 0, 1, False, False, False)]


def _with_experts(
    layer: nn.Module, expert: list[Description], summary: list[Description], features: int
) -> list[Description]:
    """Return the layers of a mixture, given those of an expert, of what the gates see, and the number of its values."""
    if not isinstance(layer, MixtureLayer):
        return expert
    experts = len(layer.splits) + 1
    logits = 2 * len(layer.splits) if layer.routing.tree else experts
    gates = [(nn.Linear, features, logits, True)] if layer.splits else []
    return [*summary, *expert * experts, *gates]
