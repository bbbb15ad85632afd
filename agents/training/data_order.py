"""What is drawn for a stage before its first step: data orders and augmentation, for one network or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.augment import CropFlip, PaddedImages, draw_crop_flip
from agents.settings import StageSettings
from agents.stacked import in_groups

Normalise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Draws:
    """Where a stage's draws come from: generators of each member's order and augmentation.

    `groups` is the number of sets of `examples` examples, each for as many members that follow one another.
    """

    examples: int
    settings: StageSettings
    order: Sequence[torch.Generator]
    augment: Sequence[torch.Generator]
    noise: torch.Generator | None
    groups: int = 1

    @property
    def members(self) -> int | None:
        """How many members are trained at once; None for a network that is not stacked."""
        return None if len(self.order) == 1 else len(self.order)

    def orders(self) -> Tensor:
        """int64 (epochs, per_epoch), or (members, epochs, per_epoch): rows of all sets, one set after another."""
        drawn = [
            draw_orders(self.examples, self.settings.epochs, generator, self.per_epoch) for generator in self.order
        ]
        if self.members is None:
            return drawn[0]
        first_rows = self.examples * torch.arange(self.groups).repeat_interleave(self.members // self.groups)
        return torch.stack(drawn).add_(first_rows[:, None, None])

    @property
    def epoch_is_one_batch(self) -> bool:
        """Whether a mini-batch is the whole epoch, unchanged, so that it is the same in any order."""
        whole = self.per_epoch == self.examples <= self.settings.batch_size
        return whole and self.settings.augmentation == "none"

    def by_set(self, tensor: Tensor) -> Tensor:
        """Of all sets one after another (groups · n, ...): (groups, n, ...); of a single one as it is."""
        return tensor if self.groups == 1 else in_groups(tensor, self.groups)

    @property
    def per_epoch(self) -> int:
        """Examples that an epoch goes through: all of them once, unless the number of updates is given."""
        updates, epochs = self.settings.updates, self.settings.epochs
        return self.examples if updates is None else updates // epochs * self.settings.batch_size

    def crop_flips(self) -> CropFlip:
        """Of the same shape as the orders."""
        shape = (self.settings.epochs, self.per_epoch)
        drawn = [draw_crop_flip(shape, self.settings.padding, generator) for generator in self.augment]
        return drawn[0] if self.members is None else CropFlip.stack(drawn)


def draw_orders(examples: int, epochs: int, generator: torch.Generator, per_epoch: int | None = None) -> Tensor:
    """One random order of the examples after another, cut into epochs: int64 (epochs, per_epoch), on the CPU."""
    per_epoch = examples if per_epoch is None else per_epoch
    orders = -(-epochs * per_epoch // examples)
    drawn = torch.cat([torch.randperm(examples, generator=generator) for _ in range(orders)])
    return drawn[: epochs * per_epoch].view(epochs, per_epoch)


def mini_batches(
    normalize: Normalise, x: Tensor, y: Tensor, settings: StageSettings, draws: Draws
) -> Callable[[int, slice], tuple[Tensor, Tensor]]:
    """A function of (epoch, places in the epoch) that gives a mini-batch, normalised: inputs and labels.

    They are (batch, ...), for members that share their data also (members, batch, ...), and else (groups, batch, ...).
    """
    if draws.epoch_is_one_batch and draws.groups > 1:
        batch = draws.by_set(normalize(x)), draws.by_set(y)  # going through them in order spares copying them
        return lambda epoch, places: batch
    orders = draws.orders().to(x.device)
    if draws.epoch_is_one_batch and draws.members is not None:
        orders = orders[0]
    inputs = training_inputs(normalize, x, settings, draws)

    def take(epoch: int, places: slice) -> tuple[Tensor, Tensor]:
        index = orders[..., epoch, places]  # (batch,) or (members, batch)
        return inputs(index, epoch, places), y[index]

    return take


def training_inputs(
    normalize: Normalise, x: Tensor, settings: StageSettings, draws: Draws
) -> Callable[[Tensor, int, slice], Tensor]:
    """A function of (indices, epoch, their places in the epoch) that gives the normalised inputs of a mini-batch.

    Indices (batch,) give (batch, ...); indices (members, batch) give (members, batch, ...).
    """
    if settings.augmentation == "none":
        normalised = normalize(x)

        def take(index: Tensor, epoch: int, batch: slice) -> Tensor:
            if index.dim() == 1:
                return normalised.index_select(0, index)  # faster than brackets on a CPU
            return normalised.index_select(0, index.flatten()).view(*index.shape, *normalised.shape[1:])

        return take
    images = PaddedImages(x, settings.padding)
    flips = draws.crop_flips().to(x.device)

    def crop(index: Tensor, epoch: int, batch: slice) -> Tensor:
        cut = images.crop_flip(index, flips[..., epoch, batch])
        if index.dim() == 1:
            return normalize(cut)
        return normalize(cut.flatten(0, 1)).view(cut.shape)

    return crop
