"""The cost of a tick: its error, the FLOPs since the previous tick, and the parameters of the predictor, at prices."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from alma_env import Score
from alma_env.errors import ArgumentTypeError


@dataclass(frozen=True)
class Prices:
    """The prices of FLOPs and parameters in units of error.

    The reward of a tick is −(error + flops · teraFLOPs + parameters · millions of parameters). If both prices are 0,
    the return of an episode is minus the cumulative error of ticks 1..B.

    Attributes:
        flops: price of one teraFLOP (10¹²).
        parameters: price of one million parameters per tick.

    Raises:
        TypeError: a price is not a number.
        ValueError: a price is negative or infinite.
    """

    flops: float = 0.0
    parameters: float = 0.0

    def __post_init__(self) -> None:
        for name, price in (("flops_price", self.flops), ("parameter_price", self.parameters)):
            if isinstance(price, bool) or not isinstance(price, Real):
                raise ArgumentTypeError(f"{name}={price!r}: must be a number, for example {name}=0.1")
            if not 0 <= float(price) < float("inf"):
                raise ValueError(f"{name}={price}: a price must be a finite number from 0 on; use 0 to charge nothing")

    def cost(self, score: Score) -> float:
        """Return the cost of a run in units of error: its CER, and its Comp and Mem at their prices."""
        return score.cer + self.flops * score.comp / 1e12 + self.parameters * score.mem / 1e6

    def reward(self, parts: NDArray[Any]) -> Any:
        """Return the weighted sum of reward vectors (..., 3)."""
        return parts @ np.array([1.0, self.flops, self.parameters])


def reward_vector(error: Any, flops: Any, parameters: Any) -> NDArray[np.float64]:
    """Return −(error, teraFLOPs, millions of parameters), float64 (3,) or (n, 3), in MO-Gymnasium's convention."""
    return -np.stack([np.asarray(error), np.asarray(flops) / 1e12, np.asarray(parameters) / 1e6], -1)


def reward_space() -> spaces.Box:
    """Return the space of `reward_vector`."""
    return spaces.Box(-np.inf, 0.0, (3,), np.float64)
