"""The network that Firefly grows: VGG19 with a width per layer and no convolution biases (Firefly's own backbone).

BatchNorm follows every convolution, so that a bias there would do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agents.networks import VGG19_BLOCKS, convolution, linear

CONVOLUTIONS = sum(VGG19_BLOCKS)


class FireflyVGG19(nn.Module):
    """VGG19 with `widths[l]` channels in convolution l: (n, in_channels, 32, 32) -> (n, classes) logits.

    With 16 equal widths it is `VGG19(width, classes, conv_bias=False)` to the last bit; both name their weights alike.
    For 3 channels and 10 classes that makes 135 c² + 69 c + 10 parameters.
    """

    def __init__(
        self, widths: Sequence[int], classes: int, in_channels: int = 3, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        if len(widths) != CONVOLUTIONS or min(widths) < 1:
            raise ValueError(f"widths={tuple(widths)}: VGG19 needs {CONVOLUTIONS} widths of at least 1")
        for name, size in (("classes", classes), ("in_channels", in_channels)):
            if size < 1:
                raise ValueError(f"{name}={size}: must be at least 1")
        layers: list[nn.Module] = []
        channels, remaining = in_channels, iter(widths)
        for convolutions in VGG19_BLOCKS:
            for _ in range(convolutions):
                width = next(remaining)
                layers += [
                    convolution(channels, width, generator, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = linear(channels, classes, generator)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Normalised (n, in_channels, 32, 32) -> logits (n, classes). Raises ValueError for sides out of 32..63."""
        if x.dim() != 4 or not all(32 <= side < 64 for side in x.shape[2:]):
            raise ValueError(
                f"input of shape {tuple(x.shape)}: VGG19 halves an image five times down to 1×1 and needs sides of "
                "32 to 63 pixels; pad or resize the images"
            )
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        """The 16 convolutions, from the input on."""
        return [layer for layer in self.features if isinstance(layer, nn.Conv2d)]

    @property
    def norms(self) -> list[nn.BatchNorm2d]:
        """The BatchNorm after each convolution."""
        return [layer for layer in self.features if isinstance(layer, nn.BatchNorm2d)]

    @property
    def widths(self) -> tuple[int, ...]:
        """Output channels of each convolution."""
        return tuple(layer.out_channels for layer in self.convolutions)

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
