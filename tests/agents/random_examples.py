"""Random weights and labelled images, each from its own seed; whether two networks have equal weights."""

from __future__ import annotations

import torch
from torch import nn

from agents.training.stage import Examples


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def examples(n: int, shape: tuple[int, ...] = (1, 8, 8), seed: int = 0) -> Examples:
    x = torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


def equal(first: nn.Module, second: nn.Module) -> bool:
    """Return whether the weights and buffers have the same names, and the same values to the last bit."""
    ours, theirs = first.state_dict(), second.state_dict()
    return list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
