"""The uniform mixture: one network made of N members, whose logits are averaged or added (ALMA paper, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

Reduce = Literal["mean", "sum"]


class UniformMixture(nn.Module):
    """The mean or the sum of the logits of its members: normalised (n, ...) -> (n, classes)."""

    def __init__(self, members: Sequence[nn.Module], reduce: Reduce = "mean") -> None:
        super().__init__()
        if reduce not in ("mean", "sum"):
            raise ValueError(f"reduce={reduce!r}: must be 'mean' (the paper) or 'sum' (the authors' released code)")
        self.members = nn.ModuleList(members)
        self.reduce = reduce

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of normalised inputs (n, ...)."""
        first, *others = self.members
        total: Tensor = first(x)
        for member in others:
            total = total + member(x)
        return total / len(self.members) if self.reduce == "mean" and others else total
