"""An average of networks as one predictor, in a form that the environment knows how to score.

ALMA paper, section 4: Ens and gEns. A growing ensemble is deployed anew whenever a member is added; since the
environment knows what this module computes, it runs only the members that it has not run before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Space = Literal["prob", "logit"]


class Ensemble(nn.Module):
    """Uniform average of its members: raw inputs (n, ...) -> logits (n, classes).

    In the space ``prob`` it answers with the logarithm of the mean of the members' softmax outputs, so that its
    cross-entropy is the ensemble's negative log-likelihood; in the space ``logit`` with the mean of their logits. A
    single member answers with its own logits.

    Args:
        members: networks from prepared inputs to logits of one shape.
        prepare: what is done to raw inputs once for all members, such as normalising; None: nothing.
        space: where the average is taken.

    Raises:
        ValueError: there is no member, or no such space.
    """

    def __init__(self, members: Sequence[nn.Module], prepare: nn.Module | None = None, space: Space = "prob") -> None:
        super().__init__()
        if not members:
            raise ValueError("0 members: an ensemble needs at least one")
        if space not in ("prob", "logit"):
            raise ValueError(f"space={space!r}: choose prob or logit")
        self.members = nn.ModuleList(members)
        self.prepare = nn.Identity() if prepare is None else prepare
        self.space = space

    @property
    def is_plain(self) -> bool:
        """Whether it answers with the average of its members and with nothing else: no hooks, nothing added to it."""
        own = vars(self)
        usual = own.keys() <= vars(nn.Module()).keys() | {"space"} and own["_modules"].keys() == {"members", "prepare"}
        empty = all(not value for name, value in own.items() if isinstance(value, dict) and name != "_modules")
        return type(self) is Ensemble and usual and empty and type(self.members) is nn.ModuleList

    def forward(self, x: Tensor) -> Tensor:
        """Raw inputs (n, ...) -> logits (n, classes)."""
        x = self.prepare(x)
        first, *others = self.members
        total = first(x)
        if not others:
            return total  # type: ignore[no-any-return]
        total = self.part(total)
        for member in others:
            total = self.add(total, self.part(member(x)))
        return self.mean(total, len(self.members))

    def part(self, logits: Tensor) -> Tensor:
        """What a member's logits contribute."""
        return logits.log_softmax(-1) if self.space == "prob" else logits

    def add(self, total: Tensor, part: Tensor) -> Tensor:
        """The contributions so far, and one more."""
        return torch.logaddexp(total, part) if self.space == "prob" else total + part

    def mean(self, total: Tensor, members: int) -> Tensor:
        """The answer of so many members."""
        return total - math.log(members) if self.space == "prob" else total / members
