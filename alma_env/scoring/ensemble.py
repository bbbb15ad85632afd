"""The ensemble: an average of networks as one predictor.

ALMA paper, section 4: Ens and gEns. A growing ensemble is deployed again whenever a member is added. The environment
knows what this module computes, so it runs only the new members (`alma_env.scoring.incremental`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from alma_env.scoring.plain_module import has_only

Space = Literal["prob", "logit"]


class Ensemble(nn.Module):
    """Uniform average of its members: raw inputs (n, ...) -> logits (n, classes).

    In the space ``prob`` the output is the logarithm of the mean of the members' softmax outputs, so that its
    cross-entropy is the ensemble's negative log-likelihood. In the space ``logit`` it is the mean of their logits. The
    output of a single member is its logits.

    Args:
        members: networks that map prepared inputs to logits of one shape.
        prepare: preparation of raw inputs, such as normalisation, done once for all members; None for no preparation.
        space: the space of the average.

    Raises:
        TypeError: the members are no modules.
        ValueError: there is no member, or the space is unknown.
    """

    def __init__(self, members: Iterable[nn.Module], prepare: nn.Module | None = None, space: Space = "prob") -> None:
        super().__init__()
        if isinstance(members, nn.Module) and not isinstance(members, nn.ModuleList):
            raise TypeError(f"members of type {type(members).__name__}: must be a list; use members=[network, …]")
        members = list(members)
        if wrong := [one for one in members if not isinstance(one, nn.Module)]:
            raise TypeError(f"member of type {type(wrong[0]).__name__}: must be an nn.Module; use members=[network, …]")
        if not members:
            raise ValueError("0 members: an ensemble needs at least one; pass a network")
        if space not in ("prob", "logit"):
            raise ValueError(f"space={space!r}: choose prob or logit")
        self.members = nn.ModuleList(members)
        self.prepare = nn.Identity() if prepare is None else prepare
        self.space = space

    @property
    def is_plain(self) -> bool:
        """Whether the output is the average of the members and nothing else: no hooks, no additional attributes."""
        plain = has_only(self, children=("members", "prepare"), attributes=("space",))
        return type(self) is Ensemble and plain and type(self.members) is nn.ModuleList

    def forward(self, x: Tensor) -> Tensor:
        """Map raw inputs (n, ...) to logits (n, classes)."""
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
        """Return the contribution of a member's logits."""
        return logits.log_softmax(-1) if self.space == "prob" else logits

    def add(self, total: Tensor, part: Tensor) -> Tensor:
        """Return the sum of the contributions so far and one more contribution."""
        return torch.logaddexp(total, part) if self.space == "prob" else total + part

    def mean(self, total: Tensor, members: int) -> Tensor:
        """Return the output from the sum of the contributions of `members` members."""
        return total - math.log(members) if self.space == "prob" else total / members
