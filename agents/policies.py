"""When to wait, train, replay and grow: a policy is any callable from the stream's progress to a decision.

>>> every_ten = fixed_wait(10)
>>> every_ten(Progress(tick=10, ticks=100, pending=10, stages=0))
Decision(train=True, replay=False, grow=False)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What a policy may know when a mega-batch has arrived.

    Attributes:
        tick: the tick that is about to be answered, 1..B.
        ticks: the length of the stream, B.
        pending: mega-batches gathered since the last training, the new one included.
        stages: trainings so far.
        validation_loss: mean cross-entropy of the best epoch of the last training, None before the first.
        validation_error: fraction of wrong validation answers at the same epoch, None before the first.
    """

    tick: int
    ticks: int
    pending: int
    stages: int
    validation_loss: float | None = None
    validation_error: float | None = None

    @property
    def last(self) -> bool:
        """Whether this is the last tick of the stream."""
        return self.tick == self.ticks


@dataclass(frozen=True)
class Decision:
    """What to do at a tick: train on what was gathered or wait; replay all earlier data, too; grow first."""

    train: bool
    replay: bool = False
    grow: bool = False


Policy = Callable[[Progress], Decision]


def fixed_wait(wait: int, *, replay: bool = False) -> Policy:
    """Train after every ``wait`` mega-batches (the paper's waiting time w) and on what is left at the last tick.

    Raises:
        ValueError: the waiting time is less than one mega-batch.
    """
    if wait < 1:
        raise ValueError(f"wait={wait}: the waiting time must be at least 1 mega-batch")
    return lambda now: Decision(train=now.pending >= wait or now.last, replay=replay)
