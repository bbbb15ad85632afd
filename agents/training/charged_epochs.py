"""Charges of epochs that no meter sees: C++ computes them, or a GPU replays them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alma_env.metering import meter
from alma_env.metering.tally import Charges, Tally


def times_charged(charges: Charges, times: int) -> Charges:
    """Return the charges of a number of equal pieces of work."""
    return tuple((phase, times * forward, times * backward) for phase, forward, backward in charges)


@contextmanager
def charged_per_epoch(charges: Charges) -> Iterator[list[int]]:
    """Charge what each epoch in the yielded list costs at the end of the block, also after an error."""
    epochs: list[int] = []
    try:
        yield epochs
    finally:
        if (running := meter.running()) is not None:
            running.charge(times_charged(charges, len(epochs)))


@contextmanager
def charges_seen() -> Iterator[Tally]:
    """Charge this block as always, and yield a tally that has its charges after the block."""
    tally = Tally(None)
    if (running := meter.running()) is None:
        yield tally
        return
    with running.count_into(tally):
        yield tally
