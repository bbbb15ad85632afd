"""Where a network was trained: the states that its training met, and whether another state is like one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.policies.learned.priced_features import FEATURES, NAMES

_MARGIN = 0.02  # of the range of a feature, on either side
_CENTRES = 512
_SAMPLE = 4_000  # states of each group, half of them for the centres
_SHARE = 0.999  # of the states without a centre of their own that lie within reach
_FREE = np.array(["price" in name for name in NAMES])  # a price of a training is known, whatever else is seen


@dataclass(frozen=True)
class KnownStates:
    """The states of a training.

    A state is known if each feature lies in its range, and if the state is near to one of the training. The ranges
    alone contain combinations that no training meets, such as a small validation loss beside a large error.

    Attributes:
        low, high: float32 (18,): the range of each feature.
        centres: float32 (n, 18): states of the training that are far from one another. Without any, as in files before
            2026-11-29, the ranges alone decide.
        scale: float32 (18,): the spread of each feature, the unit of its distances.
        reach: the largest distance of a known state from the nearest centre.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    centres: NDArray[np.float32]
    scale: NDArray[np.float32]
    reach: float

    @classmethod
    def ranges(cls, low: NDArray[np.float32], high: NDArray[np.float32]) -> KnownStates:
        """Return the states whose features lie in these ranges, float32 (18,)."""
        return cls(low, high, np.zeros((0, len(FEATURES)), np.float32), np.ones(len(FEATURES), np.float32), 0.0)

    @classmethod
    def of(cls, groups: Sequence[NDArray[np.float32]]) -> KnownStates:
        """Return the states of a training.

        The centres are chosen by farthest-point traversal (Gonzalez 1985) in one half of a sample. The reach is a
        quantile of the distances of the other half.

        Args:
            groups: features that episodes of a model met, float32 (n, 18). The centres and the reach come from at most
                4,000 different states of each group, so that a long stream does not outweigh a short one.
        """
        everything = np.concatenate(groups)
        low, high = everything.min(0), everything.max(0)
        margin = _MARGIN * (high - low)
        random = np.random.default_rng(0)
        samples = [random.permutation(np.unique(group, axis=0))[:_SAMPLE] for group in groups]
        half, other = (np.concatenate([sample[start::2] for sample in samples]) for start in (0, 1))
        scale = np.maximum(half.std(0), 1e-3).astype(np.float32)
        centres = _far_apart(half, scale)
        found = cls(low - margin, high + margin, centres, scale, 0.0)
        distances = found.distances(other) if len(other) else np.zeros(1)
        return cls(found.low, found.high, centres, scale, float(np.quantile(distances, _SHARE)))

    def distances(self, seen: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return how far states, float32 (n, 18), are from the nearest centre, float64 (n,)."""
        centres = (self.centres / self.scale)[:, ~_FREE]
        return np.array([np.sqrt(((state - centres) ** 2).sum(-1).min()) for state in (seen / self.scale)[:, ~_FREE]])

    def contain(self, seen: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which states, float32 (n, 18), are known, bool (n,)."""
        inside: NDArray[np.bool_] = ((seen >= self.low) & (seen <= self.high) | _FREE).all(-1)
        return inside & (self.distances(seen) <= self.reach) if len(self.centres) else inside

    def require_sound(self) -> None:
        """Raise ValueError if the parts do not fit together."""
        arrays = {"low": self.low, "high": self.high, "scale": self.scale, "centres": self.centres}
        for name, array in arrays.items():
            if array.shape[-1:] != (len(FEATURES),) or array.ndim != 1 + (name == "centres"):
                raise ValueError(f"{name} of shape {array.shape}, for {len(FEATURES)} features")
            if array.dtype != np.float32:
                raise ValueError(f"{name} of {array.dtype}, not float32")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has a number that is not finite")
        if not (self.scale > 0).all():
            raise ValueError("a scale that is not positive")
        if not 0 <= self.reach < np.inf:
            raise ValueError(f"reach={self.reach}, not a distance")


def _far_apart(states: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return states of which each is the farthest from those before it, at most `_CENTRES`."""
    scaled = (states / scale)[:, ~_FREE]
    chosen, distances = [0], np.full(len(states), np.inf)
    while len(chosen) < min(_CENTRES, len(states)):
        distances = np.minimum(distances, ((scaled - scaled[chosen[-1]]) ** 2).sum(-1))
        chosen.append(int(distances.argmax()))
    return states[chosen]
