"""The observation of the second version of the decision environments: eighteen bounded numbers, prices among them.

No number identifies the stream or the learner, so a policy can decide on streams and learners that it never saw.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.learned import features as first_version
from agents.policies.progress import Progress
from agents.policies.validation import check_types

PRICES = ("pass_price", "memory_price")  # the names of the prices
HIGHEST_PASS_PRICE = 1_000.0  # errors; higher prices look like this one
HIGHEST_MEMORY_PRICE = 1.0  # errors per tick; higher prices look like this one
_STEPS = 1_000.0  # the logarithm separates prices of memory down to a thousandth of the highest

FEATURES: tuple[tuple[str, float, float, str], ...] = (
    *(feature for feature in first_version.FEATURES if feature[0] != "flops"),
    ("last_size", 0, 1, "ln(1 + mega-batches on which the last stage trained) / ln(1 + B)"),
    ("processed", 0, 1, "ln(1 + mega-batches of all stages since the last restart) / ln(1 + B²)"),
    ("pass_price", 0, 1, "ln(1 + errors that a full pass costs) / ln(1 + 1000)"),
    (
        "pending_price",
        0,
        1,
        "ln(1 + errors that a training of the untrained predictor on the gathered mega-batches costs) / ln(1 + 1000)",
    ),
    (
        "memory_price",
        0,
        1,
        "ln(1 + 1000 m) / ln(1 + 1000), with m the errors per tick that the size of the untrained predictor costs, at "
        "most 1",
    ),
    ("can_grow", 0, 1, "0: the learner cannot grow; 0.5: growth leaves the FLOPs of a training as they are; else 1"),
)
NAMES = tuple(name for name, *_ in FEATURES)
_OLD = [first_version.NAMES.index(name) for name in NAMES if name in first_version.NAMES]
_PENDING_PRICE = NAMES.index("pending_price")


def checked_prices(policy: Any) -> dict[str, float]:
    """Return the prices at which a policy decides, by name; ValueError if one is no number, negative or infinite."""
    prices = {name: getattr(policy, name) for name in PRICES}
    for name, price in check_types(prices, dict.fromkeys(PRICES, float)).items():
        if not 0 <= price < math.inf:
            raise ValueError(f"{name}={price!r}: must be a price from 0 on; use {name}=0, or leave it out")
        prices[name] = float(price)
    return prices


def feature_space() -> spaces.Box:
    """Return the space of `features`, float32 (18,); a new object at each call."""
    return first_version.space_of(FEATURES)


def features(
    *,
    last_size: Any,
    processed: Any,
    pass_price: Any,
    memory_price: Any,
    grows: Any,
    free_growth: Any,
    **progress: Any,
) -> NDArray[np.float32]:
    """Return eighteen numbers in the order of `FEATURES`, each within its bounds, float32 (18,) or (n, 18).

    Args:
        last_size: mega-batches on which the last stage trained; 0 before the first stage.
        processed: mega-batches of all stages since the last restart.
        pass_price: errors that a full pass costs: one stage of the untrained network on each mega-batch.
        memory_price: errors per tick that a predictor of the size of the untrained one costs.
        grows: whether the learner can grow.
        free_growth: whether growth leaves the FLOPs of a training as they are; without effect unless the learner grows.
        progress: the arguments of `agents.policies.learned.features.features`.
    """
    ticks = progress["ticks"]
    old = first_version.features(**progress)[..., _OLD]
    new = np.empty((*np.shape(progress["tick"]), len(FEATURES) - len(_OLD)), np.float32)
    new[..., 0] = np.log1p(last_size) / math.log1p(ticks)
    new[..., 1] = np.log1p(processed) / math.log1p(ticks**2)
    new[..., 2] = np.log1p(pass_price) / math.log1p(HIGHEST_PASS_PRICE)
    new[..., 3] = _pending_price(pass_price, progress["pending"], ticks)
    new[..., 4] = np.log1p(np.multiply(memory_price, _STEPS)) / math.log1p(_STEPS * HIGHEST_MEMORY_PRICE)
    new[..., 5] = can_grow(grows, free_growth)
    return np.concatenate([old, np.clip(new, 0, 1)], -1)


def can_grow(grows: Any, free_growth: Any) -> Any:
    """Return the feature ``can_grow`` of a learner, or of each of several learners."""
    return np.where(free_growth, 0.5, 1.0) * grows


def write_waiting(out: NDArray[np.float32], *, tick: Any, ticks: int, pending: Any, pass_price: Any) -> None:
    """Write the features that change while a learner waits into ``out``, (18,) or (n, 18)."""
    first_version.write_waiting(out, tick=tick, ticks=ticks, pending=pending)
    out[..., _PENDING_PRICE] = np.minimum(_pending_price(pass_price, pending, ticks), 1)


def _pending_price(pass_price: Any, pending: Any, ticks: int) -> Any:
    return np.log1p(np.multiply(pass_price, pending) / ticks) / math.log1p(HIGHEST_PASS_PRICE)


def features_of(
    now: Progress, *, pass_price: float, memory_price: float, grows: bool, free_growth: bool
) -> NDArray[np.float32]:
    """Return the features of one run, float32 (18,).

    Raises:
        ValueError: the progress has no loss of the uniform guess.
    """
    return features(
        **first_version.arguments_of(dataclasses.replace(now, flops=0)),  # no feature depends on them
        last_size=now.last_size,
        processed=now.processed_since_restart,
        pass_price=pass_price,
        memory_price=memory_price,
        grows=grows,
        free_growth=free_growth,
    )
