"""Decisions about the next training, made directly after the training before it.

A policy that decides at every tick makes hundreds of decisions, nearly all of them to wait. A policy that decides once
after each training makes about ten: when to train next, on what, and from which weights; or never again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPLAYS = ("none", "last", "all")  # earlier mega-batches of a training; ``last``: the newest tenth of the stream


@dataclass(frozen=True)
class NextTraining:
    """A decision about the next training.

    Attributes:
        factor: growth of the data until then: 2.5 waits until 2.5 times as many mega-batches have arrived, at least
            until the next one. Before the first training it counts from one mega-batch: the factors up to 1.6 train at
            tick 1, 2.5 at tick 2, and 5 at tick 4.
        replay: one of `REPLAYS`.
        restart: train from a new random initialisation.
        grow: grow before training; a learner that cannot grow trains without growth.
    """

    factor: float
    replay: str
    restart: bool = False
    grow: bool = False


@dataclass(frozen=True)
class Menu:
    """The decisions between which a network chooses: the trainings; the last number means no training any more."""

    trainings: tuple[NextTraining, ...]

    @property
    def stop(self) -> int:
        """The number of the decision to train no more."""
        return len(self.trainings)

    def next_ticks(self, decisions: Any, last: Any, ticks: int) -> NDArray[np.float64]:
        """Return the tick of the next training, at least one tick after the last one; infinite for `stop`.

        A first training that would be after the end of the stream is at the last tick.

        Args:
            decisions: numbers of `trainings`, or `stop`, int (n,) or a number.
            last: tick of the last training; 0 before the first.
            ticks: number of mega-batches in the stream.

        >>> WITHOUT_GROWTH.next_ticks([0, 8, WITHOUT_GROWTH.stop], 10, ticks=50).tolist()
        [11.0, 16.0, inf]
        """
        factors = np.array([*(one.factor for one in self.trainings), np.inf])
        grown = (factors[np.asarray(decisions)] - 1) * np.maximum(last, 1)
        due: NDArray[np.float64] = np.asarray(last + np.maximum(np.ceil(np.round(grown, 9)), 1))
        return np.where((np.asarray(last) == 0) & np.isfinite(due), np.minimum(due, ticks), due)


FACTORS = (1.1, 1.25, 1.6, 2.5, 5.0)
WITHOUT_GROWTH = Menu(
    tuple(
        NextTraining(factor, replay, restart)
        for factor, (replay, restart) in itertools.product(
            FACTORS, (("none", False), ("last", False), ("all", False), ("all", True))
        )
    )
)
WITH_GROWTH = Menu(
    (
        *WITHOUT_GROWTH.trainings,
        *(NextTraining(factor, replay, grow=True) for factor, replay in itertools.product(FACTORS, REPLAYS)),
    )
)
MENUS = (WITHOUT_GROWTH, WITH_GROWTH)
