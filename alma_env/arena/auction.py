"""The auction: one budget of FLOPs for several agents, divided by bids.

At each tick the highest bidders get the seats: each is granted the FLOPs of its bid, the highest bidder first, as far
as the pool suffices. A grant leaves the pool whether or not it is used, so that a bid has a price. The sum of all
grants is at most the pool; hence the FLOPs of agents that stay within their grants are, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from alma_env.data.permutation import permutation

# Key of the permutation that breaks ties.
_TIES = 0x41524E41


def grants(bids: Mapping[str, int], *, seats: int, pool: int, rank: Mapping[str, int]) -> dict[str, int]:
    """Return the FLOPs granted to each bidder: the highest bidders get their bid or the rest of the pool, others 0.

    A bid of 0 requests no seat; among equal bids, the lowest rank is first.

    >>> grants({"a": 5, "b": 9, "c": 5}, seats=2, pool=12, rank={"a": 2, "b": 0, "c": 1})
    {'a': 0, 'b': 9, 'c': 3}
    """
    granted = dict.fromkeys(bids, 0)
    for agent in sorted(bids, key=lambda agent: (-bids[agent], rank[agent]))[:seats]:
        granted[agent] = min(bids[agent], pool)
        pool -= granted[agent]
    return granted


def tie_ranks(agents: list[str], seed: int, tick: int) -> dict[str, int]:
    """Return the rank of each agent among equal bids at a tick: a random order, determined by (seed, tick)."""
    order = permutation(len(agents), seed, (_TIES, tick))
    return {agents[place]: rank for rank, place in enumerate(order)}


def read_bid(bid: Any, budget: int) -> int:
    """Return a bid, a number or an array with one number, as whole FLOPs, rounded down; it is at most the budget."""
    if isinstance(bid, np.ndarray) and bid.size == 1:
        bid = bid.item()
    if isinstance(bid, bool | np.bool_) or not isinstance(bid, int | float | np.integer | np.floating):
        raise TypeError(f"bid={bid!r}: must be a number of FLOPs, for example 1e9, or 0 for no seat")
    rounded = isinstance(bid, float) and math.isfinite(bid) and bid == float(budget)  # above the budget, perhaps
    if not (0 <= bid <= budget or rounded):  # refuses nan, too
        raise ValueError(
            f"bid={bid!r}: must lie between 0 (no seat) and the shared budget of {budget} FLOPs; bid within it"
        )
    return min(int(bid), budget)


def read_budget(budget: Any, seats: Any, agents: int) -> int:
    """Return the shared budget in whole FLOPs after checking it and the number of seats."""
    whole = isinstance(budget, Integral) or (isinstance(budget, Real) and float(budget).is_integer())
    if isinstance(budget, bool) or not whole:
        raise TypeError(f"shared_flops_budget={budget!r}: must be a whole number of FLOPs, for example 1e12")
    if not budget > 0:
        raise ValueError(f"shared_flops_budget={budget!r}: a budget must be positive; use None for none")
    if isinstance(seats, bool) or not isinstance(seats, Integral):
        raise TypeError(f"seats={seats!r}: must be a whole number, for example seats=1")
    if not 1 <= int(seats) <= agents:
        raise ValueError(f"seats={seats}: must lie between 1 and the number of agents, {agents}")
    return int(budget)
