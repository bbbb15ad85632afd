"""The networks of the growing mixture of experts: MLP and VGG19 with mixtures in place of layers or blocks.

ALMA paper, section 4. With one expert per mixture, which is how they begin, they are the MLP and the VGG19 of
`agents.networks`: the same weights from the same generator, the same outputs and gradients to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from agents.networks import VGG19_BLOCKS, Predictor, convolution, linear
from agents.single_model import Build
from agents.switch import SwitchTransformer
from agents.tree import MixtureLayer, Routing, balanced_splits


class MixtureNetwork(nn.Sequential):
    """Layers one after another, some of them mixtures of experts."""

    @property
    def mixtures(self) -> list[MixtureLayer]:
        """The mixture layers, in the order of the forward pass."""
        return [layer for layer in self if isinstance(layer, MixtureLayer)]

    @property
    def cost_depends_on_data(self) -> bool:
        """Whether two batches of one size may cost differently: routed examples run the gates on their path alone."""
        return any(layer.routing.gating == "hard" and len(layer.experts) > 1 for layer in self.mixtures)

    def forward(self, x: Tensor, draws: Sequence[Tensor] | None = None) -> Tensor:
        """Normalised (n, ...) -> logits (n, classes). `draws`, one per mixture: see `MixtureLayer.forward`."""
        remaining = iter(draws or ())
        for layer in self:
            x = layer(x, next(remaining, None)) if isinstance(layer, MixtureLayer) else layer(x)
        return x

    def forward_with_shares(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logits (n, classes), and per mixture each leaf's share of each example (n, leaves)."""
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

    With k experts: (inputs + 1 + hidden + 1) hidden k + (hidden + 1) classes + 2 (inputs + hidden + 2) (k − 1)
    parameters. All gates of a layer see its input.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, *, generator: torch.Generator) -> None:
        _require_positive(inputs=inputs, hidden=hidden, classes=classes)
        super().__init__(
            nn.Flatten(),
            MixtureLayer(partial(_hidden_layer, inputs, hidden), inputs, generator=generator),
            MixtureLayer(partial(_hidden_layer, hidden, hidden), hidden, generator=generator),
            linear(hidden, classes, generator),
        )


class MixtureVGG19(MixtureNetwork):
    """A VGG19 whose blocks 2 to 5 are mixtures: (n, in_channels, 32, 32) -> (n, classes) logits.

    An expert is a whole block: its convolutions, each with BatchNorm and ReLU, and the pooling. The gates of a block
    see its input averaged to 4×4, 16 c values (c = width), and decide per image. With k experts, 3 channels and 10
    classes: 135 c² + 85 c + 10 + (k − 1) (126 c² + 170 c + 8) parameters.
    """

    def __init__(self, width: int, classes: int, in_channels: int = 3, *, generator: torch.Generator) -> None:
        _require_positive(width=width, classes=classes, in_channels=in_channels)
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

    def forward(self, x: Tensor, draws: Sequence[Tensor] | None = None) -> Tensor:
        """Normalised (n, in_channels, 32, 32) -> logits (n, classes). Raises ValueError for sides out of 32..63."""
        if x.dim() != 4 or not all(32 <= side < 64 for side in x.shape[2:]):
            raise ValueError(
                f"input of shape {tuple(x.shape)}: VGG19 halves an image five times down to 1×1 and needs sides of "
                "32 to 63 pixels; pad or resize the images, or use the MLP"
            )
        return super().forward(x, draws)


def build_mixture(
    build: Build, generator: torch.Generator, experts: int = 1, routing: Routing | None = None
) -> Predictor:
    """The predictor that `build` makes, with so many untrained experts in each of its mixtures.

    The further experts and gates are drawn after everything else. More than one expert is the fixed mixture of the
    ALMA paper's first version, section 5.2. A Switch Transformer has its experts and its routing already.

    Raises:
        ValueError: fewer than one expert, or experts or a routing for a Switch Transformer.
        TypeError: the body is not a mixture network.
    """
    if experts < 1:
        raise ValueError(f"init_experts={experts}: a mixture needs at least 1 expert; the paper begins with 1")
    predictor = build(generator)
    body = mixture_body(predictor)
    if isinstance(body, SwitchTransformer):
        if experts != 1 or routing not in (None, Routing()):
            raise ValueError(
                f"init_experts={experts}, {routing} with a Switch Transformer: it sends each token to one expert, and "
                "its width is the number of experts to begin with; leave these out"
            )
        return predictor
    for layer in body.mixtures:
        layer.routing = routing or Routing()
        layer.regrow(balanced_splits(experts) if layer.routing.tree else (0,) * (experts - 1), generator)
    return predictor


def mixture_body(predictor: Predictor) -> MixtureNetwork | SwitchTransformer:
    """The predictor's body. Raises TypeError unless it is a network whose `mixtures` can grow."""
    if not isinstance(predictor.body, MixtureNetwork | SwitchTransformer):
        raise TypeError(
            f"build made a {type(predictor.body).__name__}: a mixture of experts grows a MixtureMLP, a MixtureVGG19 or "
            "a SwitchTransformer"
        )
    return predictor.body


def _hidden_layer(inputs: int, hidden: int, generator: torch.Generator) -> nn.Module:
    return nn.Sequential(linear(inputs, hidden, generator), nn.ReLU())


def _block(inputs: int, width: int, convolutions: int, generator: torch.Generator) -> nn.Module:
    layers: list[nn.Module] = []
    for number in range(convolutions):
        layers += [
            convolution(width if number else inputs, width, generator),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
    block = nn.Sequential(*layers, nn.MaxPool2d(2))
    return block.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # as in VGG19


def _summary() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())


def _require_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size}: must be at least 1")
