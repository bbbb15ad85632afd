"""The order and the augmentation of the examples of a stage, drawn on the CPU before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


Share = Callable[[int, int], slice]  # the part of a range of positions that this process computes


def mini_batches(
    normalize: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, order: DataOrder, share: Share
) -> Callable[[int], Iterator[tuple[Tensor, Tensor]]]:
    """Return a function of the epoch, from 0, that yields mini-batches: normalised inputs (b, ...) and labels (b, ...).

    The orders may have further dimensions before those of `DataOrder.orders`; the mini-batches then have them, too.
    """
    settings = order.settings
    orders = order.orders().to(x.device)
    if settings.augmentation == "crop_flip":
        images, flips = PaddedImages(x, settings.padding), order.crop_flips().to(x.device)
    else:
        x = normalize(x)

    def inputs(index: Tensor, epoch: int, positions: slice) -> Tensor:
        if settings.augmentation == "crop_flip":
            cut = normalize(images.crop_flip(index, flips[..., epoch, positions]).flatten(0, -4))
            return cut.view(*index.shape, *cut.shape[1:])
        return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])  # faster than x[index] on a CPU

    def of_epoch(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, order.per_epoch, settings.batch_size):
            positions = share(start, min(start + settings.batch_size, order.per_epoch))
            index = orders[..., epoch, positions]
            yield inputs(index, epoch, positions), y[index]

    return of_epoch
