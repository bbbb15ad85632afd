"""What ``step`` of a decision environment returns as reward: a number, or the vector of MO-Gymnasium's convention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.analysis.prices import Prices, reward_space

KINDS = ("scalar", "vector")


@dataclass(frozen=True)
class Reward:
    """The reward of a tick.

    Attributes:
        kind: ``scalar``: −(error + priced teraFLOPs + priced millions of parameters). ``vector``: −(error, teraFLOPs,
            millions of parameters), float64 (3,), without prices.
        prices: the prices of a scalar reward: the weights of the second and the third number of a vector, in the units
            of the environment.

    Raises:
        ValueError: the kind is unknown, or prices are given for a vector.
    """

    kind: str
    prices: Prices

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"reward={self.kind!r}: must be 'scalar' or 'vector'")
        if self.kind == "vector" and self.prices != Prices():
            raise ValueError(
                f"reward='vector' with flops_price={self.prices.flops}, parameter_price={self.prices.parameters}: a "
                "reward vector has no prices; leave the prices out, or weight the vector (mo_gymnasium's LinearReward)"
            )

    def __call__(self, vectors: NDArray[np.float64]) -> Any:
        """Return the reward of reward vectors (3,) or (n, 3): a copy of them, or a float or float64 (n,)."""
        if self.kind == "vector":
            return vectors.copy()  # wrappers change it, and the info has it too
        return self.prices.reward(vectors) if vectors.ndim > 1 else float(self.prices.reward(vectors))

    @property
    def space(self) -> spaces.Box:
        """The space of a reward vector.

        Raises:
            AttributeError: the reward is a number. Libraries take an environment with a reward space for one with
                vector rewards.
        """
        if self.kind == "scalar":
            raise AttributeError(
                "reward_space: the rewards of this environment are numbers, and info['vector_reward'] has the vector; "
                "for vector rewards of Wait-v0 make it with reward='vector', or by the id that ends in -MO-v0"
            )
        return reward_space()
