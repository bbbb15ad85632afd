"""Custom data sets from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alma_env.data.datasets import TEXT, DataSet
from alma_env.data.normalisation import in_parts, moments, per_channel


def from_arrays(
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike],
    *,
    name: str = "Arrays",
    classes: int | None = None,
    scale: float | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> DataSet:
    """Make a data set from your own (x, y) pairs, which are copied.

    Args:
        train: x, uint8 or floats (stored as float32) of shape (N, ...) with channels on axis 1; y, integers (N,).
        test: the test part, with the same dtypes and shapes.
        name: name of the data set.
        classes: number of classes; default: the largest train label + 1.
        scale: divisor of x; default: 255 for uint8 and 1 for floats.
        mean: one number for all channels, or one per channel; default: the mean of train x / scale, per channel if x
            has at least 3 axes, otherwise one number.
        std: as `mean`; default: the standard deviation of train x / scale, and 1 for a constant channel.

    Raises:
        ValueError: the arrays, or a value, break a rule.
        TypeError: an array has the wrong dtype.
    """
    if name == TEXT:
        raise ValueError(f"name={name!r}: this name is reserved for text; choose another")
    train_x, train_y = _checked(train, "train")
    test_x, test_y = _checked(test, "test")
    if train_x.shape[1:] != test_x.shape[1:] or train_x.dtype != test_x.dtype:
        raise ValueError(
            f"test x is {test_x.dtype} {test_x.shape[1:]}, train x is {train_x.dtype} {train_x.shape[1:]}: "
            "shape and dtype of the examples must be equal"
        )
    if classes is None:
        classes = int(train_y.max()) + 1
    if classes < 2:
        raise ValueError(f"classes={classes}: must be at least 2; pass classes= if some classes are not in train")
    for part, y in (("train", train_y), ("test", test_y)):
        if y.max() >= classes:
            raise ValueError(
                f"{part} y has the label {y.max()}: labels must be 0..{classes - 1}; pass classes= if there are more"
            )
    if scale is None:
        scale = 255.0 if train_x.dtype == np.uint8 else 1.0
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale={scale}: must be a positive number, because x is divided by it")
    own_mean, own_std = moments(train_x, scale) if mean is None or std is None else ((), ())
    channels = train_x.shape[1] if train_x.ndim >= 3 else 1
    mean = own_mean if mean is None else per_channel(mean, "mean", channels)
    std = own_std if std is None else per_channel(std, "std", channels)
    if min(std) <= 0:
        raise ValueError(f"std={std}: must be positive, because inputs are divided by it")
    return DataSet(name, train_x, train_y, test_x, test_y, classes, float(scale), mean, std)


def _checked(part: tuple[ArrayLike, ArrayLike], name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if len(part) != 2:
        raise ValueError(f"{name} has {len(part)} items: must be a pair (x, y)")
    x, y = np.asarray(part[0]), np.asarray(part[1])
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise TypeError(f"{name} x is {x.dtype}: must be uint8 or float; convert with x.astype('float32')")
    if x.ndim < 2 or x.size == 0:
        raise ValueError(f"{name} x has shape {x.shape}: must be (N, ...), with at least one example and one feature")
    with np.errstate(over="ignore"):
        dtype = np.uint8 if x.dtype == np.uint8 else np.float32
        mapped = isinstance(part[0], np.memmap) and x.dtype == dtype and x.flags.c_contiguous
        x = x if mapped else np.array(x, dtype=dtype, order="C")
    if x.dtype == np.float32 and not all(np.isfinite(rows).all() for rows in in_parts(x)):
        raise ValueError(f"{name} x has NaN or infinite values in float32: remove them or rescale x")
    if y.dtype.kind not in "iu":
        raise TypeError(f"{name} y is {y.dtype}: labels must be integers; convert with y.astype('int64')")
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"{name} y has shape {y.shape}: must be (N,), with at least one label")
    y = np.array(y, dtype=np.int64)
    if y.min() < 0:
        raise ValueError(f"{name} y has the label {y.min()}: labels must be 0..classes-1")
    if len(x) != len(y):
        raise ValueError(f"{name}: {len(x)} inputs and {len(y)} labels: must be equal; pass one label per input")
    return x, y
