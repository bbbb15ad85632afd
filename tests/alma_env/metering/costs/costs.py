"""What an operation costs, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from alma_env.metering import Charge
from alma_env.metering.costs import cost_table


def forward_and_backward(charge: Charge) -> tuple[int, int]:
    forward = sum(charge.forward.values())
    return forward, charge.total - forward


def cost(operation: Any, *args: Any) -> int:
    """FLOPs of one call, also of an operation that this machine cannot execute."""
    formula = cost_table.rule(operation)
    assert callable(formula)
    return cost_table.evaluate(formula, operation, args, {}, None)


def randn(*shape: int, grad: bool = False, device: str = "cpu") -> Tensor:
    return torch.randn(shape, device=device, requires_grad=grad)


def train(output: Any) -> None:
    """A backward pass from everything differentiable in `output`."""
    tensors = [output] if isinstance(output, Tensor) else list(output)
    flat: list[Tensor] = []
    while tensors:
        item = tensors.pop()
        if isinstance(item, Tensor):
            flat.append(item)
        elif isinstance(item, tuple | list):
            tensors += item
    sum(t.sum() for t in flat if t.requires_grad).backward()  # type: ignore[union-attr]
