"""Normalisation: mean and standard deviation of the inputs, normalised = (x / scale - mean) / std."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PART = 1 << 16  # numbers
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
    if x.dtype == np.uint8:
        return of_histograms([_histogram(channel) for channel in channels], scale)
    found = [_of_floats(channel, scale) for channel in channels]
    return tuple(mean for mean, _ in found), tuple(std if std > 0 else 1.0 for _, std in found)  # 0: it underflows


def of_histograms(histograms: Sequence[NDArray[np.int64]], scale: float) -> Moments:
    """Return the exact moments of x / scale from the number of times that each channel holds each value 0..255."""
    found = [_of_histogram(counts, np.arange(256) / scale) for counts in histograms]
    return tuple(mean for mean, _ in found), tuple(std for _, std in found)


def _of_histogram(counts: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[float, float]:
    present = values[counts > 0]
    if len(present) == 1:  # the mean of equal numbers is rounded, and then their variance is not 0
        return float(present[0]), 1.0
    mean = float(np.average(values, weights=counts))
    return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))


def _histogram(channel: NDArray[np.uint8]) -> NDArray[np.int64]:
    return sum((np.bincount(part.reshape(-1), minlength=256) for part in in_parts(channel)), np.zeros(256, np.int64))


def in_parts(x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array, some at a time: a temporary copy of a whole set may not fit into memory."""
    rows = max(_PART * len(x) // max(x.size, 1), 1)
    for start in range(0, len(x), rows):
        yield x[start : start + rows]


def _of_floats(channel: NDArray[Any], scale: float) -> tuple[float, float]:
    """Return ``values.mean()`` and ``values.std()`` of the channel in double precision, without a copy of the set.

    A constant channel has the deviation 1.
    """
    if (first := channel.flat[0]) == channel.min() == channel.max():
        return float(first) / scale, 1.0
    # A slice of `flat` copies its numbers only, so a channel that is spread over the set is read block by block.
    numbers = channel.reshape(-1) if channel.flags.c_contiguous else channel.flat
    average = _sum(numbers, 0, channel.size, lambda block: block / scale) / channel.size
    squares = _sum(numbers, 0, channel.size, lambda block: np.square(block / scale - average))
    return average, math.sqrt(squares / channel.size)


def _sum(numbers: Any, start: int, stop: int, of: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """Return the sum of a function of numbers[start:stop], block by block.

    The halves are those of NumPy's pairwise summation, so that the sum is that of NumPy to the last bit: the constants
    of a data set are part of its protocol, and those of earlier versions were computed at once.
    """
    if stop - start <= _PART:
        return float(of(numbers[start:stop].astype(np.float64)).sum())
    half = (stop - start) // 2
    half += start - half % 8
    return _sum(numbers, start, half, of) + _sum(numbers, half, stop, of)


def per_channel(value: float | Sequence[float], name: str, channels: int) -> tuple[float, ...]:
    """Return one number per channel, from one number for all channels or one per channel."""
    try:
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (ValueError, TypeError):  # text, or rows of several lengths
        values = np.empty(0)
    if values.shape not in ((1,), (channels,)) or not np.isfinite(values).all():
        raise ValueError(f"{name}={value}: must be one finite number, or {channels} (one per channel)")
    return tuple(np.broadcast_to(values, channels).tolist())
