"""What a layer of experts offers to a learner that grows it: the contract of `MixtureLayer` and of `SwitchLayer`."""

from __future__ import annotations

from typing import Protocol

import torch


class GrowingLayer(Protocol):
    """A layer of experts, its leaves, that grows by splits.

    Attributes:
        splits: the leaf that each growth step split. With the initial number of leaves, they give the architecture.
    """

    splits: tuple[int, ...]

    @property
    def leaves(self) -> int:
        """Number of experts."""

    def split(self, leaf: int, generator: torch.Generator) -> None:
        """Add a copy of a leaf; `generator` is for new weights. Raise ValueError if there is no such leaf."""

    def regrow(self, splits: tuple[int, ...], generator: torch.Generator) -> None:
        """Add untrained experts until the layer has these splits. Raise ValueError if it already has other splits."""


def require_leaf(layer: GrowingLayer, leaf: int) -> None:
    """Raise ValueError unless the layer has this leaf."""
    if not 0 <= leaf < layer.leaves:
        raise ValueError(f"leaf={leaf}: must be one of the leaves 0 to {layer.leaves - 1}")


def missing_splits(layer: GrowingLayer, splits: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of the splits that the layer lacks. Raise ValueError if it already has other splits."""
    if splits[: len(layer.splits)] != layer.splits:
        raise ValueError(
            f"splits={splits}: the layer already has the splits {layer.splits}; use a new layer with the initial "
            "number of experts of the saved layer"
        )
    return splits[len(layer.splits) :]
