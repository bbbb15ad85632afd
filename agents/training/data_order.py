"""The order and the augmentation of the examples of a stage, drawn on the CPU before the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.training.augment import CropFlip, PaddedImages, draw_crop_flip
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings


@dataclass(frozen=True)
class DataOrder:
    """The data order and the augmentation of one network in one stage, on `examples` training examples."""

    examples: int
    settings: StageSettings
    generators: StageGenerators

    @property
    def per_epoch(self) -> int:
        """Examples per epoch: each example once, unless the settings fix the number of updates."""
        updates, epochs = self.settings.updates, self.settings.epochs
        return self.examples if updates is None else updates // epochs * self.settings.batch_size

    @property
    def epoch_is_one_batch(self) -> bool:
        """Whether one mini-batch is the whole epoch without augmentation, so that the order has no effect."""
        whole = self.per_epoch == self.examples <= self.settings.batch_size
        return whole and self.settings.augmentation == "none"

    def orders(self) -> Tensor:
        """Draw the orders: int64 (epochs, per_epoch)."""
        return draw_orders(self.examples, self.settings.epochs, self.generators.order, self.per_epoch)

    def crop_flips(self) -> CropFlip:
        """Draw the augmentation, in the shape of the orders."""
        return draw_crop_flip((self.settings.epochs, self.per_epoch), self.settings.padding, self.generators.augment)


def draw_orders(examples: int, epochs: int, generator: torch.Generator, per_epoch: int | None = None) -> Tensor:
    """Draw random orders of the examples, one after another, cut into epochs: int64 (epochs, per_epoch), on the CPU."""
    per_epoch = examples if per_epoch is None else per_epoch
    orders = -(-epochs * per_epoch // examples)
    drawn = torch.cat([torch.randperm(examples, generator=generator) for _ in range(orders)])
    return drawn[: epochs * per_epoch].view(epochs, per_epoch)


class MiniBatches:
    """The training examples of a stage in their random order, on the device of the examples."""

    def __init__(self, normalize: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, order: DataOrder) -> None:
        self._normalize, self._y = normalize, y
        self._orders = order.orders().to(x.device).flatten()  # (epochs · per_epoch,)
        self._flips: CropFlip | None = None
        if order.settings.augmentation == "crop_flip":
            self._images = PaddedImages(x, order.settings.padding)
            self._flips = order.crop_flips().to(x.device).flatten()
        else:
            self._x = normalize(x)

    def at(self, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Return normalised inputs (b, ...) and labels (b, ...) at some positions in the order of all epochs."""
        index = self._orders[positions]
        if self._flips is None:
            x = self._x.index_select(0, index)  # faster than x[index] on a CPU
        else:
            x = self._normalize(self._images.crop_flip(index, self._flips[positions]))
        return x, self._y[index]
