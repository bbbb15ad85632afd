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
    """

    factor: float
    replay: str
    restart: bool = False


FACTORS = (1.1, 1.25, 1.6, 2.5, 5.0)
NEXT_TRAININGS = tuple(
    NextTraining(factor, replay, restart)
    for factor, (replay, restart) in itertools.product(
        FACTORS, (("none", False), ("last", False), ("all", False), ("all", True))
    )
)
STOP = len(NEXT_TRAININGS)  # the number of the decision to train no more
_FACTORS = np.array([*(one.factor for one in NEXT_TRAININGS), np.inf])


def next_ticks(decisions: Any, last: Any) -> NDArray[np.float64]:
    """Return the tick of the next training, at least one tick after the last one; infinite for `STOP`.

    Args:
        decisions: numbers of `NEXT_TRAININGS`, or `STOP`, int (n,) or a number.
        last: tick of the last training; 0 before the first.

    >>> next_ticks([0, 8, STOP], 10).tolist()
    [11.0, 16.0, inf]
    """
    grown = (_FACTORS[np.asarray(decisions)] - 1) * np.maximum(last, 1)
    return np.asarray(last + np.maximum(np.ceil(np.round(grown, 9)), 1))
