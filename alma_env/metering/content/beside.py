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

from alma_env.metering.content.storages import tensors_of, version_of


class Beside:
    """Parameters and optimizers whose gradients and states functions wrote."""

    def __init__(self) -> None:
        # By the id of a parameter or optimizer: a weak reference to it, why what was written is foreign, and versions.
        self._noted: dict[int, tuple[weakref.ref[Any], str, list[int | None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, tensors: Iterable[Tensor], optimizers: Iterable[Optimizer], foreign: str) -> None:
        """Note that a function wrote the gradients of the parameters in `tensors`, and the states of `optimizers`."""
        for owner in owners_of(tensors, optimizers):
            before = self._noted.get(id(owner))
            why = foreign or ("" if before is None or before[0]() is not owner else before[1])
            self._noted[id(owner)] = weakref.ref(owner), why, list(map(version_of, written_beside(owner)))

    def holds(self, owner: Tensor | Optimizer) -> bool:
        """Return whether a gradient or a state is what a function wrote, and no operation wrote to it since."""
        noted = self._noted.get(id(owner))
        return noted is not None and noted[0]() is owner and list(map(version_of, written_beside(owner))) == noted[2]

    def take(self) -> Iterator[tuple[Tensor, str, bool]]:
        """Forget what was noted; yield each of the tensors, why it is foreign, or "", and whether it has changed."""
        noted, self._noted = self._noted, {}
        for reference, foreign, versions in noted.values():
            owner = reference()
            written = [] if owner is None else written_beside(owner)
            before = versions if len(versions) == len(written) else [None] * len(written)
            for tensor, one in zip(written, before, strict=True):
                yield tensor, foreign, version_of(tensor) != one


def owners_of(tensors: Iterable[Tensor], optimizers: Iterable[Optimizer]) -> list[Tensor | Optimizer]:
    """Return the arguments beside which functions write: leaves that need a gradient, and optimizers."""
    return [*(one for one in tensors if one.requires_grad and one.is_leaf), *optimizers]


def written_beside(owner: Tensor | Optimizer) -> list[Tensor]:
    """Return what functions write beside an argument: the gradient of a parameter, the state of an optimizer."""
    if isinstance(owner, Optimizer):
        return tensors_of([*owner.state.values()])
    return [] if owner.grad is None else [owner.grad]
