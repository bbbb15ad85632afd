"""The order and the augmentation of the examples of a stage, drawn before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.networks.stacked import in_groups
from agents.training.augment import CropFlip, PaddedImages, draw_crop_flip
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings

Normalise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class DataOrder:
    """The data order and augmentation of a stage.

    Networks that follow one another share a data set; each data set has the same number of networks.
    """

    examples: int  # per data set
    settings: StageSettings
    generators: Sequence[StageGenerators]  # one per network
    groups: int = 1  # number of data sets, of equal size

    @property
    def members(self) -> int | None:
        """Number of networks that train together; None for a network that is not stacked."""
        return None if len(self.generators) == 1 else len(self.generators)

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
        """Draw the orders: int64 (epochs, per_epoch) or (members, epochs, per_epoch), rows of the joined data sets."""
        drawn = [
            draw_orders(self.examples, self.settings.epochs, each.order, self.per_epoch) for each in self.generators
        ]
        if self.members is None:
            return drawn[0]
        first_rows = self.examples * torch.arange(self.groups).repeat_interleave(self.members // self.groups)
        return torch.stack(drawn).add_(first_rows[:, None, None])

    def crop_flips(self) -> CropFlip:
        """Draw the augmentation, in the shape of the orders."""
        shape = (self.settings.epochs, self.per_epoch)
        drawn = [draw_crop_flip(shape, self.settings.padding, each.augment) for each in self.generators]
        return drawn[0] if self.members is None else CropFlip.stack(drawn)

    def by_group(self, tensor: Tensor) -> Tensor:
        """Split the joined data sets (groups · n, ...) into (groups, n, ...); return a single data set as it is."""
        return tensor if self.groups == 1 else in_groups(tensor, self.groups)


def draw_orders(examples: int, epochs: int, generator: torch.Generator, per_epoch: int | None = None) -> Tensor:
    """Draw random orders of the examples, one after another, cut into epochs: int64 (epochs, per_epoch), on the CPU."""
    per_epoch = examples if per_epoch is None else per_epoch
    orders = -(-epochs * per_epoch // examples)
    drawn = torch.cat([torch.randperm(examples, generator=generator) for _ in range(orders)])
    return drawn[: epochs * per_epoch].view(epochs, per_epoch)


def mini_batches(
    normalize: Normalise, x: Tensor, y: Tensor, settings: StageSettings, data_order: DataOrder
) -> Callable[[int, slice], tuple[Tensor, Tensor]]:
    """Return a function of (epoch, positions in the epoch) that gives a mini-batch: normalised inputs and labels.

    Inputs and labels are (batch, ...). They are (members, batch, ...) if each member has its own order, and
    (groups, batch, ...) if the mini-batch is the whole epoch and there are several groups.
    """
    if data_order.epoch_is_one_batch and data_order.groups > 1:
        batch = data_order.by_group(normalize(x)), data_order.by_group(y)  # in their stored order: saves a copy
        return lambda epoch, positions: batch
    orders = data_order.orders().to(x.device)
    if data_order.epoch_is_one_batch and data_order.members is not None:
        orders = orders[0]
    inputs = _training_inputs(normalize, x, settings, data_order)

    def mini_batch(epoch: int, positions: slice) -> tuple[Tensor, Tensor]:
        index = orders[..., epoch, positions]  # (batch,) or (members, batch)
        return inputs(index, epoch, positions), y[index]

    return mini_batch


def _training_inputs(
    normalize: Normalise, x: Tensor, settings: StageSettings, data_order: DataOrder
) -> Callable[[Tensor, int, slice], Tensor]:
    """Return a function of (indices, epoch, positions in the epoch) that gives the normalised inputs of a mini-batch.

    Indices (batch,) give (batch, ...); indices (members, batch) give (members, batch, ...).
    """
    if settings.augmentation == "none":
        normalised = normalize(x)

        def plain(index: Tensor, epoch: int, positions: slice) -> Tensor:
            if index.dim() == 1:
                return normalised.index_select(0, index)  # faster than normalised[index] on a CPU
            return normalised.index_select(0, index.flatten()).view(*index.shape, *normalised.shape[1:])

        return plain
    images = PaddedImages(x, settings.padding)
    flips = data_order.crop_flips().to(x.device)

    def augmented(index: Tensor, epoch: int, positions: slice) -> Tensor:
        cut = images.crop_flip(index, flips[..., epoch, positions])
        if index.dim() == 1:
            return normalize(cut)
        return normalize(cut.flatten(0, 1)).view(cut.shape)

    return augmented
