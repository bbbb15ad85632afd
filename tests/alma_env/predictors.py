"""A predictor that returns the value of a function, and a few steps of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Returning(nn.Module):
    """A predictor that returns the value of a function."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


def train(model: nn.Module, observation: Any, steps: int = 3) -> None:
    """A few steps of training on images."""
    x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
