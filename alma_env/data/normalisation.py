"""Normalisation: mean and standard deviation of the inputs, normalised = (x / scale - mean) / std."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PART = 2**20  # values

Moments = tuple[tuple[float, ...], tuple[float, ...]]  # mean, standard deviation

# Moments per channel of x / 255 over the train part. MNIST and CIFAR-10 have the paper's numbers, EMNIST has those of
# MNIST, and the other sets have the usual published ones.
PUBLISHED: dict[str, Moments] = {
    "MNIST": ((0.1307,), (0.3081,)),
    "EMNIST": ((0.1307,), (0.3081,)),
    "FashionMNIST": ((0.2860,), (0.3530,)),
    "CIFAR10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def moments(x: NDArray[Any], scale: float) -> Moments:
    """Return mean and standard deviation of x / scale, per channel (axis 1) if x has at least 3 axes.

    A memory-mapped array is read in parts, because it may be larger than the memory.
    """
    channels: list[Any] = list(range(x.shape[1])) if x.ndim >= 3 else [slice(None)]
    if x.dtype == np.uint8:  # by histogram: exact, and without a float copy of the set
        weights = [np.zeros(256, np.int64) for _ in channels]
        for part in in_parts(x):
            for of_channel, c in zip(weights, channels, strict=True):
                of_channel += np.bincount(part[:, c].ravel(), minlength=256)
        return _of_histograms(weights, scale)
    if _is_mapped(x):
        return _moments_by_parts(x, scale)
    mean, std = [], []
    for c in channels:
        values = x[:, c].astype(np.float64) / scale
        average, deviation = float(values.mean()), float(values.std())
        mean.append(average)
        std.append(deviation if deviation > 0 else 1.0)
    return tuple(mean), tuple(std)


def _is_mapped(x: Any) -> bool:
    while x is not None and not isinstance(x, np.memmap):
        x = getattr(x, "base", None)
    return x is not None


def _moments_by_parts(x: NDArray[Any], scale: float) -> Moments:
    axes = (0, *range(2, x.ndim)) if x.ndim >= 3 else tuple(range(x.ndim))
    count = x.size // (x.shape[1] if x.ndim >= 3 else 1)

    def mean_of(function: Any) -> NDArray[np.float64]:
        total = sum(function(part.astype(np.float64) / scale).sum(axes) for part in in_parts(x))
        return np.atleast_1d(total / count)

    mean = mean_of(lambda values: values)
    shape = (1, -1) + (1,) * (x.ndim - 2) if x.ndim >= 3 else (1,) * x.ndim
    deviation = np.sqrt(mean_of(lambda values: (values - mean.reshape(shape)) ** 2))
    return tuple(mean.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())


def _of_histograms(weights: Sequence[NDArray[np.int64]], scale: float) -> Moments:
    """Return mean and standard deviation of x / scale from how often each value 0..255 occurs in each channel."""
    values = np.arange(256) / scale
    mean = [float(np.average(values, weights=of_channel)) for of_channel in weights]
    std = [
        float(np.sqrt(np.average((values - average) ** 2, weights=of_channel)))
        for average, of_channel in zip(mean, weights, strict=True)
    ]
    return tuple(mean), tuple(deviation if deviation > 0 else 1.0 for deviation in std)


def in_parts(x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array in parts of a few megabytes, because the array may be larger than the memory."""
    rows = max(1, _PART * len(x) // max(x.size, 1))
    for start in range(0, len(x), rows):
        yield x[start : start + rows]


def per_channel(value: float | Sequence[float], name: str, channels: int) -> tuple[float, ...]:
    """Return one number per channel, from one number for all channels or one per channel."""
    try:
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (ValueError, TypeError):  # text, or rows of several lengths
        values = np.empty(0)
    if values.shape not in ((1,), (channels,)) or not np.isfinite(values).all():
        raise ValueError(f"{name}={value}: must be one finite number, or {channels} (one per channel)")
    return tuple(np.broadcast_to(values, channels).tolist())
