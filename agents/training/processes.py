"""How the processes of a run divide a stage among themselves; the default is a single process, which does all of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from agents.training.data_order import DataOrder


class SingleProcess:
    """A stage in one process; `agents.training.distributed.Ranks` divides it among several."""

    number = 0  # of this process

    def share(self, start: int, stop: int) -> slice:
        """Return the part of a range of examples that this process computes."""
        return slice(start, stop)

    def means(self, own: tuple[Tensor, ...], examples: int) -> tuple[Tensor, ...]:
        """Return means over all `examples` from the means over this process's share of them."""
        return own

    def replicas(
        self, body: nn.Module, loss: Callable[[nn.Module, Tensor, Tensor], Tensor], order: DataOrder, validating: int
    ) -> AbstractContextManager[None]:
        """Keep the weights of `body` equal in all processes during the block.

        `loss` is a function of (body, x, y), a mean over examples. `validating` is the number of validation examples.
        """
        return nullcontext()
