"""One budget of FLOPs for several agents, divided by bids.

At each tick the highest bidders are seated: each is granted the FLOPs that it bid, the highest bidder first, as far as
the pool reaches. A grant leaves the pool for good, used or not, so that a bid has its price; as grants never add up to
more than the pool held, neither do the FLOPs of those who keep to theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

# Keeps the draws that break ties apart from the stream's, which come from the same seed.
_TIES = 0x41524E41


def grants(bids: Mapping[str, int], *, seats: int, pool: int, rank: Mapping[str, int]) -> dict[str, int]:
    """FLOPs granted to each bidder: its bid, or what the pool still holds, to the highest bidders; else 0.

    Args:
        bids: FLOPs by agent; 0 asks for no seat.
        seats: how many agents are seated at most.
        pool: FLOPs that are left for all.
        rank: by agent, who is first among those whose bids are equal: the lowest.

    >>> grants({"a": 5, "b": 9, "c": 5}, seats=2, pool=12, rank={"a": 2, "b": 0, "c": 1})
    {'a': 0, 'b': 9, 'c': 3}
    """
    granted = dict.fromkeys(bids, 0)
    for agent in sorted(bids, key=lambda agent: (-bids[agent], rank[agent]))[:seats]:
        granted[agent] = min(bids[agent], pool)
        pool -= granted[agent]
    return granted


def tie_ranks(agents: list[str], seed: int, tick: int) -> dict[str, int]:
    """Who is first at a tick among those whose bids are equal: a random order of the agents, fixed by (seed, tick)."""
    # Straight from the bit generator, whose sequence NumPy keeps for ever.
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_TIES, tick)))
    order = np.argsort(bits.random_raw(len(agents)), kind="stable")
    return {agents[place]: rank for rank, place in enumerate(order)}


def read_bid(bid: Any, budget: int) -> int:
    """A bid as whole FLOPs, rounded down.

    Args:
        bid: a number, or an array that holds one.
        budget: the most that can be bid: the whole shared budget.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, not finite, or more than the budget.
    """
    if isinstance(bid, np.ndarray) and bid.size == 1:
        bid = bid.item()
    if isinstance(bid, bool | np.bool_) or not isinstance(bid, int | float | np.number):
        raise TypeError(f"bid={bid!r}: a bid is a number of FLOPs, for example 1e9, or 0 for no seat")
    if not (math.isfinite(bid) and 0 <= bid <= float(budget)):
        raise ValueError(
            f"bid={bid!r}: a bid is a number of FLOPs from 0 (no seat) to the shared budget of {budget}; bid within it"
        )
    return int(bid)


def read_budget(budget: Any, seats: Any, agents: int) -> int:
    """The shared budget in whole FLOPs, checked together with the number of seats.

    Raises:
        TypeError: one of them is no whole number.
        ValueError: the budget is not positive, or there are no seats or more than agents.
    """
    whole = isinstance(budget, Integral) or (isinstance(budget, float) and budget.is_integer())
    if isinstance(budget, bool) or not whole:
        raise TypeError(f"shared_flops_budget={budget!r}: must be a whole number of FLOPs, for example 1e12")
    if not budget > 0:
        raise ValueError(f"shared_flops_budget={budget!r}: a budget must be positive; use None for none")
    if isinstance(seats, bool) or not isinstance(seats, Integral):
        raise TypeError(f"seats={seats!r}: must be a whole number, for example seats=1")
    if not 1 <= int(seats) <= agents:
        raise ValueError(f"seats={seats}: between 1 and the number of agents, {agents}, may train at each tick")
    return int(budget)
