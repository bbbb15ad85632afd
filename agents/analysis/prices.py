"""What an answer costs: its error, the FLOPs spent since the answer before, and the parameters that gave it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from alma_env import Score


@dataclass(frozen=True)
class Prices:
    """The reward of a tick is −(error + flops · teraFLOPs + parameters · millions of parameters).

    With both at 0 the return of an episode is minus the cumulative error of ticks 1..B.

    Attributes:
        flops: error that one teraFLOP (10¹²) is worth.
        parameters: error that one million parameters is worth at each tick.

    Raises:
        TypeError, ValueError: a price is no number, or negative.
    """

    flops: float = 0.0
    parameters: float = 0.0

    def __post_init__(self) -> None:
        for name, price in (("flops_price", self.flops), ("parameter_price", self.parameters)):
            if isinstance(price, bool) or not isinstance(price, Real):
                raise TypeError(f"{name}={price!r}: must be a number, for example {name}=0.1")
            if not 0 <= float(price) < float("inf"):
                raise ValueError(f"{name}={price}: a price must not be negative, and finite; 0 charges nothing")

    @property
    def weights(self) -> NDArray[np.float64]:
        """Of the reward's three parts, float64 (3,)."""
        return np.array([1.0, self.flops, self.parameters])

    def cost(self, score: Score) -> float:
        """What a whole run costs, in errors: its CER, and its Comp and Mem at their prices."""
        return score.cer + self.flops * score.comp / 1e12 + self.parameters * score.mem / 1e6

    def reward(self, parts: NDArray[Any]) -> Any:
        """Weighted sum of the parts (..., 3)."""
        return parts @ self.weights


def reward_vector(error: Any, flops: Any, parameters: Any) -> NDArray[np.float64]:
    """−(error, teraFLOPs, millions of parameters), in MO-Gymnasium's convention: unweighted, larger is better.

    Returns:
        float64 (3,) or (n, 3).
    """
    return -np.stack([np.asarray(error), np.asarray(flops) / 1e12, np.asarray(parameters) / 1e6], -1)


def reward_space() -> spaces.Box:
    """The space of `reward_vector`."""
    return spaces.Box(-np.inf, 0.0, (3,), np.float64)
