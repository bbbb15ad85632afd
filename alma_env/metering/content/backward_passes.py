"""Backward passes that no meter saw: a witness that networks were trained outside of the metered blocks.

PyTorch numbers the backward passes of a process, in whichever thread they run. A meter notes the numbers of the passes
that it counts. The others ran outside: before or after the blocks, in a pause, or in another thread.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

current_pass: Callable[[], int] = torch._C._current_graph_task_id  # -1 outside of a backward pass


class BackwardPasses:
    """The passes of this process, since the first look."""

    def __init__(self) -> None:
        self.seen: set[int] = set()  # numbers of the passes that a meter counted since the last look
        self.charged = 0  # passes since the last look that ran uncounted, at a cost that was charged
        self._unseen = 0
        self._next = next_number()

    def unseen(self) -> int:
        """Return how many passes no meter saw."""
        number = next_number()
        ran = number - self._next
        self._unseen += max(0, ran - len(self.seen) - self.charged)
        self.seen.clear()
        self.charged, self._next = 0, number + 1
        return self._unseen


def next_number() -> int:
    """Return the number of a backward pass that this function runs."""
    numbers: list[int] = []

    def note(_: Tensor) -> None:
        numbers.append(current_pass())

    with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        probe = torch.zeros((), requires_grad=True)
        probe.register_hook(note)  # type: ignore[no-untyped-call]
        probe.backward()  # type: ignore[no-untyped-call]
    return numbers[0]


_passes: BackwardPasses | None = None


def passes() -> BackwardPasses:
    """Return the passes of this process."""
    global _passes
    if _passes is None:
        _passes = BackwardPasses()
    return _passes
