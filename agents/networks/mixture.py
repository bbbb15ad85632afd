"""The networks of the growing mixture of experts: MLP and VGG19 with mixtures instead of layers or blocks.

ALMA paper, section 4. Initially each mixture has one expert. The networks then equal the MLP and the VGG19 of
`agents.networks.mlp_vgg`: equal weights from an equal generator, and equal outputs and gradients to the last bit.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from agents.networks.gate_tree import MixtureLayer, Routing, balanced_splits
from agents.networks.mlp_vgg import (
    VGG19_BLOCKS,
    Build,
    Predictor,
    linear,
    require_image_sides,
    require_positive,
    vgg19_block,
)
from agents.networks.switch import SwitchTransformer


class MixtureNetwork(nn.Sequential):
    """Sequential layers, some of them mixtures of experts."""

    @property
    def mixtures(self) -> list[MixtureLayer]:
        """The mixture layers, in the order of the forward pass."""
        return [layer for layer in self if isinstance(layer, MixtureLayer)]

    @property
    def cost_depends_on_data(self) -> bool:
        """Whether batches of equal size can differ in cost: with hard gates, only the gates on a path are run."""
        return any(layer.routing.gating == "hard" and len(layer.experts) > 1 for layer in self.mixtures)

    def forward_with_shares(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits (n, classes), and per mixture the share of each leaf in each example (n, leaves)."""
        shares = []
        for layer in self:
            if isinstance(layer, MixtureLayer):
                x, share = layer.forward_with_shares(x)
                shares.append(share)
            else:
                x = layer(x)
        return x, shares


class MixtureMLP(MixtureNetwork):
    """An MLP whose two hidden layers are mixtures: (n, ...) -> (n, classes) logits. An expert is Linear + ReLU.

    With k experts it has (inputs + 1 + hidden + 1) hidden k + (hidden + 1) classes + 2 (inputs + hidden + 2) (k − 1)
    parameters. The input of a layer is also the input of its gates.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, *, generator: torch.Generator) -> None:
        require_positive(inputs=inputs, hidden=hidden, classes=classes)
        super().__init__(
            nn.Flatten(),
            MixtureLayer(partial(_hidden_layer, inputs, hidden), inputs, generator=generator),
            MixtureLayer(partial(_hidden_layer, hidden, hidden), hidden, generator=generator),
            linear(hidden, classes, generator),
        )


class MixtureVGG19(MixtureNetwork):
    """A VGG19 whose blocks 2 to 5 are mixtures: (n, in_channels, 32, 32) -> (n, classes) logits.

    An expert is a whole block: its convolutions, each with BatchNorm and ReLU, and the pooling. The input of a block's
    gates is the block's input averaged to 4×4, 16 c values (c = width); they decide per image. With k experts, 3
    channels and 10 classes it has 135 c² + 85 c + 10 + (k − 1) (126 c² + 170 c + 8) parameters.
    """

    def __init__(self, width: int, classes: int, in_channels: int = 3, *, generator: torch.Generator) -> None:
        require_positive(width=width, classes=classes, in_channels=in_channels)
        first, *others = VGG19_BLOCKS
        super().__init__(
            _block(in_channels, width, first, generator),
            *(
                MixtureLayer(partial(_block, width, width, convolutions), 16 * width, _summary(), generator=generator)
                for convolutions in others
            ),
            nn.Flatten(),
            linear(width, classes, generator),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of normalised (n, in_channels, H, W). Sides must be from 32 to 63 pixels."""
        require_image_sides(x)
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return logits


def build_mixture(
    build: Build, generator: torch.Generator, experts: int = 1, routing: Routing | None = None
) -> Predictor:
    """Return the predictor of `build`, with `experts` untrained experts in each of its mixtures.

    The weights of additional experts and gates are drawn last. More than one expert is the fixed mixture of the ALMA
    paper's first version, section 5.2. A Switch Transformer already has its experts and its routing.

    Raises:
        ValueError: there is no expert, or experts or a routing are given for a Switch Transformer.
        TypeError: the body is not a mixture network.
    """
    if experts < 1:
        raise ValueError(f"init_experts={experts}: must be at least 1 expert; use init_experts=1, as in the paper")
    predictor = build(generator)
    body = mixture_body(predictor)
    if isinstance(body, SwitchTransformer):
        if experts != 1 or routing not in (None, Routing()):
            raise ValueError(
                f"init_experts={experts}, {routing} with a Switch Transformer: its width is the initial number of "
                "experts, and it sends each token to one expert; leave init_experts and the routing out"
            )
        return predictor
    for layer in body.mixtures:
        layer.routing = routing or Routing()
        layer.regrow(balanced_splits(experts) if layer.routing.tree else (0,) * (experts - 1), generator)
    return predictor


def mixture_body(predictor: Predictor) -> MixtureNetwork | SwitchTransformer:
    """Return the body of a predictor. Raise TypeError unless it is a network whose `mixtures` can grow."""
    if not isinstance(predictor.body, MixtureNetwork | SwitchTransformer):
        raise TypeError(
            f"build returned a {type(predictor.body).__name__}: a mixture of experts needs a MixtureMLP, a "
            "MixtureVGG19 or a SwitchTransformer"
        )
    return predictor.body


def _hidden_layer(inputs: int, hidden: int, generator: torch.Generator) -> nn.Module:
    return nn.Sequential(linear(inputs, hidden, generator), nn.ReLU())


def _block(inputs: int, width: int, convolutions: int, generator: torch.Generator) -> nn.Module:
    block = nn.Sequential(*vgg19_block([inputs, *[width] * convolutions], generator))
    return block.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # as in VGG19


def _summary() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
