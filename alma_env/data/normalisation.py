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
    """Return mean and standard deviation of x / scale, per channel (axis 1) if x has at least 3 axes."""
    channels = [x[:, c] for c in range(x.shape[1])] if x.ndim >= 3 else [x]
    if x.dtype == np.uint8:  # by histogram: exact, and without a float copy of the set
        return of_histograms([np.bincount(channel.reshape(-1), minlength=256) for channel in channels], scale)
    mean, std = [], []
    for channel in channels:
        values = channel.astype(np.float64) / scale
        average, deviation = float(values.mean()), float(values.std())
        mean.append(average)
        std.append(deviation if deviation > 0 else 1.0)
    return tuple(mean), tuple(std)


def of_histograms(weights: Sequence[NDArray[np.int64]], scale: float) -> Moments:
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
