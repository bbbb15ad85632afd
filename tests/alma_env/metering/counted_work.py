"""Work of known cost: a matrix product, and a training step of a small network."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCT = 2 * 4 * 4 * 4


def product() -> Tensor:
    return torch.ones(4, 4) @ torch.ones(4, 4)


def mlp(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


def batch(examples: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(examples, 6), torch.randint(3, (examples,))


def step(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def step_flops(examples: int = 5, width: int = 4) -> tuple[int, int]:
    forward = 2 * examples * (6 * width + width * 3)
    return forward, forward + 2 * examples * width * 3


class Listener(TorchDispatchMode):
    """A user's mode, which must see all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))
