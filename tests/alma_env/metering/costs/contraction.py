"""Whether a call of an operation contracts two operands, found by changing elements of its operands."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env.metering.costs import cost_table

CHANGE = 0.03
ELEMENTS = 24  # changed of an operand
CALLS = 2  # kept of an operation


class Recorder(TorchDispatchMode):
    """Keeps calls of free operations that have more than one operand of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[OpOverload, list[list[Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(cost_table.rule(func), str):
            leaves, spec = pytree.tree_flatten((args, kwargs or {}))
            operands = _numbers(leaves)
            key = [(tuple(leaf.shape) if isinstance(leaf, Tensor) else leaf) for leaf in leaves]
            kept = self.calls.setdefault(func, [])
            if len(operands) > 1 and len(kept) < CALLS and all(key != other for other, _, _ in kept):
                kept.append([key, [copied(leaf) for leaf in leaves], spec])
        return func(*args, **(kwargs or {}))


def copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf


def _numbers(leaves: list[Any]) -> list[int]:
    """Positions of the operands that are changed: those of floats; integers if there are none, as in `gcd`."""
    return floats_of(leaves) or [
        i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.dtype == torch.int64 and leaf.numel()
    ]


def _step(operand: Tensor) -> float:
    return CHANGE if operand.is_floating_point() else 1


def floats_of(leaves: list[Any]) -> list[int]:
    """Positions of the operands of floats."""
    return [
        i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()
    ]


class Call:
    """A call of an operation, which can be repeated with changed operands."""

    def __init__(self, operation: OpOverload, leaves: list[Any], spec: Any) -> None:
        self.operation, self.spec = operation, spec
        self.leaves = leaves
        double = [leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf for leaf in leaves]
        try:
            self.run(double)
            self.leaves = double
        except RuntimeError:
            self.run(leaves)
        self.operands = [i for i in _numbers(self.leaves) if self.changeable(i)]
        single = any(self.leaves[i].dtype == torch.float32 for i in self.operands)
        self.rounding = 1e-4 if single else 1e-9

    def run(self, leaves: list[Any]) -> Tensor:
        """Return all numbers that the operation returns or writes."""
        leaves = [copied(leaf) for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        torch.default_generator.manual_seed(0)  # torch.manual_seed would take most of the time: it formats stack traces
        out = self.operation(*args, **kwargs)
        schema = self.operation._schema.arguments
        values = [args[i] if i < len(args) else kwargs.get(a.name) for i, a in enumerate(schema)]
        written = [v for a, v in zip(schema, values, strict=True) if a.alias_info is not None and a.alias_info.is_write]
        found = [t for t in pytree.tree_leaves((out, written)) if isinstance(t, Tensor) and t.numel()]
        numbers = [torch.view_as_real(t) if t.is_complex() else t for t in found]
        return torch.cat([torch.nan_to_num(t.double()).flatten() for t in numbers]) if numbers else torch.zeros(0)

    def changed(self, changes: dict[int, Tensor]) -> Tensor:
        leaves = list(self.leaves)
        for operand, change in changes.items():
            leaves[operand] = leaves[operand] + change
        return self.run(leaves)

    def changeable(self, operand: int) -> bool:
        """Whether an operand can have other values: some floats are flags."""
        try:
            self.changed({operand: torch.full_like(self.leaves[operand], _step(self.leaves[operand]))})
        except RuntimeError:
            return False
        return True

    def partners(self, a: int, b: int) -> int:
        """The most elements of operand `a` that meet operand `b` in one output."""
        generator = torch.Generator().manual_seed(1)
        db = _step(self.leaves[b]) * (torch.rand(self.leaves[b].shape, generator=generator, dtype=torch.float64) + 1)
        db = db.to(self.leaves[b].dtype)
        size = self.leaves[a].numel()
        chosen = range(size) if size <= ELEMENTS else torch.randperm(size, generator=generator)[:ELEMENTS].tolist()
        counts: Tensor | None = None
        of_b = self.changed({b: db}) - self.changed({})
        for i in chosen:
            da = torch.zeros_like(self.leaves[a])
            da.view(-1)[i] = _step(da)
            mixed = self.changed({a: da, b: db}) - self.changed({a: da}) - of_b
            met = (mixed.abs() > self.rounding).long()
            counts = met if counts is None else counts + met
        return 0 if counts is None or not counts.numel() else int(counts.max())

    def products(self) -> int:
        """The most products of different elements of two operands that one output depends on."""
        most = 0
        for a, b in itertools.combinations(self.operands, 2):
            if (met := self.partners(a, b)) > most:
                most = max(most, min(met, self.partners(b, a)))
        return most
