"""Uncounted work: blocks that run at full speed, without the dispatcher, because their caller charges them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes as disable_modes

from alma_env.metering.content.backward_passes import passes
from alma_env.metering.meter import running


@contextmanager
def uncounted(written: Iterable[Tensor] = (), read: Iterable[Tensor] = ()) -> Iterator[None]:
    """Run this block at full speed, without counting; the caller charges it.

    Functions of `count_once` are not charged in it, either. After an error, too, `written` counts as written.

    Args:
        written: the tensors that the block reads and writes.
        read: the tensors from which it computes them.
    """
    meter = running()
    if meter is None:
        yield
        return
    content: Any = meter.content
    found, foreign = content.look_at_all(written)
    foreign = foreign or content.look_at_all(read)[1]
    try:
        with disable_modes():
            above = meter.suspend()
            try:
                yield
            finally:
                meter.resume(above)
    finally:
        content.note_all(found, foreign)


def note_copies(originals: Iterable[Tensor], copies: Iterable[Tensor]) -> None:
    """Note, after an `uncounted` block, that it made copies: a copy has the provenance of its original."""
    if (meter := running()) is not None:
        meter.content.note_copies(originals, copies)


def note_backward_passes(number: int) -> None:
    """Note, after an `uncounted` block, how many backward passes PyTorch ran in it: the caller charges them."""
    if running() is not None:
        passes().charged += number
