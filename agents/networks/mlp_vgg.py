"""The networks of the paper's vision experiments: an MLP for MNIST, VGG19 of constant width for CIFAR-10.

The deployed module is a `Predictor`: it takes raw inputs, normalises them and returns logits. Initial weights have
PyTorch's default distribution. They are drawn from a generator that the caller passes, never from the global one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from alma_env.scoring.normalised import Normalize as Normalize
from alma_env.scoring.normalised import Predictor as Predictor

VGG19_BLOCKS = (2, 2, 4, 4, 4)  # convolutions before each of the five poolings


class MLP(nn.Sequential):
    """Two hidden layers of `hidden` ReLU units on the flattened input: (n, ...) -> (n, classes) logits.

    It has h² + (inputs + classes + 2) h + classes parameters; `inputs` is the number of values per example.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, *, generator: torch.Generator) -> None:
        require_positive(inputs=inputs, hidden=hidden, classes=classes)
        super().__init__(
            nn.Flatten(),
            linear(inputs, hidden, generator),
            nn.ReLU(),
            linear(hidden, hidden, generator),
            nn.ReLU(),
            linear(hidden, classes, generator),
        )


class VGG19(nn.Module):
    """VGG19 with `width` channels in each of its 16 convolutions, or one width per convolution.

    (n, in_channels, 32, 32) -> (n, classes) logits.

    BatchNorm and ReLU follow every 3×3 convolution. A 2×2 max-pooling ends each of the five blocks of 2, 2, 4, 4, 4
    convolutions. One linear layer classifies the 1×1 map. For 3 channels and 10 classes it has 135 c² + 85 c + 10
    parameters and takes 16848 c² + 27658 c multiply-adds (c = width).
    """

    def __init__(
        self,
        width: int | Sequence[int],
        classes: int,
        in_channels: int = 3,
        *,
        conv_bias: bool = True,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = [width] * sum(VGG19_BLOCKS) if isinstance(width, int) else list(width)
        if len(widths) != sum(VGG19_BLOCKS):
            raise ValueError(
                f"widths={tuple(widths)}: there must be one width per convolution; give {sum(VGG19_BLOCKS)} widths"
            )
        require_positive(width=min(widths), classes=classes, in_channels=in_channels)
        layers: list[nn.Module] = []
        channels = [in_channels, *widths]
        for convolutions in VGG19_BLOCKS:
            layers += vgg19_block(channels[: convolutions + 1], generator, bias=conv_bias)
            channels = channels[convolutions:]
        self.features = nn.Sequential(*layers)
        self.classifier = linear(widths[-1], classes, generator)
        # Faster on a CPU with AVX-512 (1.3 times at c = 8) and on GPUs; activations take the layout of the weights.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of normalised (n, in_channels, H, W). Sides must be from 32 to 63 pixels."""
        require_image_sides(x)
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        """The 16 convolutions, from the input to the output."""
        return [layer for layer in self.features if isinstance(layer, nn.Conv2d)]

    @property
    def widths(self) -> tuple[int, ...]:
        """Output channels of each convolution."""
        return tuple(layer.out_channels for layer in self.convolutions)


# Creates an untrained predictor, with initial weights from the generator.
Build = Callable[[torch.Generator], Predictor]


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return `nn.Linear(inputs, outputs)` with its default initialisation drawn from `generator`."""
    layer = nn.Linear(inputs, outputs, device="meta")
    _initialise(layer, generator)
    return layer


def convolution(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> nn.Conv2d:
    """Return a 3×3 `nn.Conv2d` that keeps the image size, initialised by default from `generator`."""
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias, device="meta")
    _initialise(layer, generator)
    return layer


def vgg19_block(channels: Sequence[int], generator: torch.Generator, *, bias: bool = True) -> list[nn.Module]:
    """Return the layers of a block: a convolution from each of `channels` to the next, BatchNorm, ReLU; the pooling."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [convolution(inputs, outputs, generator, bias=bias), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return [*layers, nn.MaxPool2d(2)]


def _initialise(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """Draw the parameters of a layer on the device "meta", where PyTorch has drawn none from the global generator."""
    # Not by `torch.nn.utils.skip_init`: this function imports SymPy, which takes 0.4 s.
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    # Equals `reset_parameters` of PyTorch's layers, which does not accept a generator.
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def require_image_sides(x: Tensor) -> None:
    """Raise ValueError unless `x` holds images that five poolings reduce to 1×1."""
    if x.dim() != 4 or not all(32 <= side < 64 for side in x.shape[2:]):
        raise ValueError(
            f"input of shape {tuple(x.shape)}: VGG19 halves an image five times to 1×1, so its sides must be from 32 "
            "to 63 pixels; pad or resize the images, or use the MLP"
        )


def require_positive(**sizes: int) -> None:
    """Raise ValueError if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size}: must be at least 1")
