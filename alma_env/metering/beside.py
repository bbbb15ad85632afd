"""What functions wrote beside their arguments: the gradients of parameters, and the states of optimizers.

They are looked up late, when the block meets a tensor that it does not know: a function that computes whole steps
overwrites them thousands of times, and seldom anything else reads them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from alma_env.metering.storages import tensors_of


class Beside:
    """Parameters and optimizers whose gradients and states functions wrote."""

    def __init__(self) -> None:
        # By the ids of parameters and optimizers: weak references to them, and why what was written is foreign.
        self._noted: dict[tuple[int, ...], tuple[list[weakref.ref[Any]], str]] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, tensors: Iterable[Tensor], optimizers: Iterable[Optimizer], foreign: str) -> None:
        """Note that a function wrote the gradients of the parameters in `tensors`, and the states of `optimizers`."""
        owners = [*(one for one in tensors if one.requires_grad), *optimizers]
        if owners:
            key = tuple(map(id, owners))
            _, before = self._noted.get(key, ([], ""))
            self._noted[key] = [weakref.ref(one) for one in owners], foreign or before

    def wrote(self, optimizer: Optimizer) -> bool:
        """Return whether a function wrote the state of an optimizer, and nothing read it since."""
        return any(id(optimizer) in owners for owners in self._noted)

    def take(self) -> Iterator[tuple[Tensor, str]]:
        """Forget what was noted; yield each of the tensors that exist, and why it is foreign, or ""."""
        noted, self._noted = self._noted, {}
        for references, foreign in noted.values():
            for owner in (reference() for reference in references):
                if isinstance(owner, Optimizer):
                    yield from ((tensor, foreign) for tensor in tensors_of([*owner.state.values()]))
                elif owner is not None and owner.grad is not None:
                    yield owner.grad, foreign
