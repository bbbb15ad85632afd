"""The network that Firefly grows: VGG19 with a width per layer and no convolution biases (Firefly's own backbone).

BatchNorm follows every convolution, so that a bias there would do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from agents.networks import VGG19, VGG19_BLOCKS

CONVOLUTIONS = sum(VGG19_BLOCKS)


class FireflyVGG19(VGG19):
    """VGG19 with `widths[l]` channels in convolution l: (n, in_channels, 32, 32) -> (n, classes) logits.

    For 16 equal widths, 3 channels and 10 classes that makes 135 c² + 69 c + 10 parameters.
    """

    def __init__(
        self, widths: Sequence[int], classes: int, in_channels: int = 3, *, generator: torch.Generator
    ) -> None:
        super().__init__(widths, classes, in_channels, conv_bias=False, generator=generator)

    @property
    def norms(self) -> list[nn.BatchNorm2d]:
        """The BatchNorm after each convolution."""
        return [layer for layer in self.features if isinstance(layer, nn.BatchNorm2d)]

    @property
    def in_channels(self) -> int:
        """Channels of the images."""
        return self.convolutions[0].in_channels

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.classifier.out_features


def parameter_count(widths: Sequence[int], classes: int, in_channels: int = 3) -> int:
    """Trainable parameters of `FireflyVGG19(widths, classes, in_channels)`."""
    inputs = (in_channels, *widths[:-1])
    convolutions = sum(9 * before * width + 2 * width for before, width in zip(inputs, widths, strict=True))
    return convolutions + classes * (widths[-1] + 1)
