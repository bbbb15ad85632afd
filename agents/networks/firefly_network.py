"""The network that Firefly grows: VGG19 with a width per layer and no convolution biases (Firefly's own backbone).

BatchNorm follows every convolution, so a bias there would have no effect. Growth in depth inserts residual layers
without BatchNorm, which would scale up the small change that was selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.mlp_vgg import VGG19, VGG19_BLOCKS, convolution

CONVOLUTIONS = sum(VGG19_BLOCKS)


class ResidualLayer(nn.Module):
    """x + σ(δ∗x) with a 3×3 convolution δ and σ = ReLU: (n, width, H, W) -> (n, width, H, W)."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.convolution = convolution(width, width, generator, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same shape."""
        return x + F.relu(self.convolution(x))


class FireflyVGG19(VGG19):
    """VGG19 with `widths[l]` channels in convolution l: (n, in_channels, 32, 32) -> (n, classes) logits.

    For 16 equal widths c, 3 channels and 10 classes it has 135 c² + 69 c + 10 parameters. `residuals[l]` layers of
    9 c² parameters follow convolution l, or the pooling after it at the end of a block. The default is none.
    """

    def __init__(
        self,
        widths: Sequence[int],
        classes: int,
        in_channels: int = 3,
        *,
        residuals: Sequence[int] | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(widths, classes, in_channels, conv_bias=False, generator=generator)
        residuals = [0] * CONVOLUTIONS if residuals is None else residuals
        if len(residuals) != CONVOLUTIONS or min(residuals) < 0:
            raise ValueError(
                f"residuals={tuple(residuals)}: must hold a number of layers, 0 or more, per convolution; give "
                f"{CONVOLUTIONS} numbers"
            )
        parts: list[list[nn.Module]] = []
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                parts.append([])
            parts[-1].append(layer)
        for part, width, count in zip(parts, widths, residuals, strict=True):
            part += [ResidualLayer(width, generator) for _ in range(count)]
        self.features = nn.Sequential(*chain(*parts))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def norms(self) -> list[nn.BatchNorm2d]:
        """The BatchNorm after each convolution."""
        return [layer for layer in self.features if isinstance(layer, nn.BatchNorm2d)]

    @property
    def residual_layers(self) -> list[list[ResidualLayer]]:
        """The residual layers after each convolution, in the order of the forward pass."""
        after: list[list[ResidualLayer]] = []
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                after.append([])
            elif isinstance(layer, ResidualLayer):
                after[-1].append(layer)
        return after

    @property
    def residuals(self) -> tuple[int, ...]:
        """Number of residual layers after each convolution."""
        return tuple(map(len, self.residual_layers))

    @property
    def in_channels(self) -> int:
        """Number of channels of the images."""
        return self.convolutions[0].in_channels

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.classifier.out_features


def firefly_parameter_count(
    widths: Sequence[int], classes: int, in_channels: int = 3, residuals: Sequence[int] | None = None
) -> int:
    """Return the number of parameters of `FireflyVGG19(widths, classes, in_channels, residuals=residuals)`."""
    inputs = (in_channels, *widths[:-1])
    convolutions = sum(9 * before * width + 2 * width for before, width in zip(inputs, widths, strict=True))
    inserted = zip(widths, residuals or [0] * len(widths), strict=True)
    return convolutions + sum(9 * width**2 * count for width, count in inserted) + classes * (widths[-1] + 1)
