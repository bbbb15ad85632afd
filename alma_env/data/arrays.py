"""Custom data sets from arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from alma_env.data.datasets import TEXT, DataSet
from alma_env.data.normalisation import in_parts, moments, per_channel
from alma_env.errors import ArgumentTypeError


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

    The arrays and their copy are all the memory that this needs. A memory map of uint8 or float32 is not copied: its
    file must not change.

    Args:
        train: x, uint8 or floats (stored as float32) of shape (N, ...) with channels on axis 1, so images are
            (N, C, H, W); y, integers (N,).
        test: the test part, with the same dtypes and shapes.
        name: name of the data set.
        classes: number of classes; default: the largest train label + 1, at most the number of train examples.
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
        classes = _largest_label(train_y) + 1
    if isinstance(classes, bool) or not isinstance(classes, Integral):
        raise ArgumentTypeError(f"classes={reprlib.repr(classes)}: must be a whole number, for example classes=10")
    if classes < 2:
        raise ValueError(f"classes={classes}: must be at least 2; pass classes= if some classes are not in train")
    for part, y in (("train", train_y), ("test", test_y)):
        if y.max() >= classes:
            raise ValueError(
                f"{part} y has the label {y.max()}: labels must be 0..{classes - 1}; pass classes= if there are more"
            )
    if scale is None:
        scale = 255.0 if train_x.dtype == np.uint8 else 1.0
    if not isinstance(scale, Real) or not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale={reprlib.repr(scale)}: must be a positive number, because x is divided by it")
    own_mean, own_std = moments(train_x, scale) if mean is None or std is None else ((), ())
    channels = train_x.shape[1] if train_x.ndim >= 3 else 1
    mean = own_mean if mean is None else per_channel(mean, "mean", channels)
    std = own_std if std is None else per_channel(std, "std", channels)
    if min(std) <= 0:
        raise ValueError(f"std={std}: must be positive, because inputs are divided by it")
    return DataSet(name, train_x, train_y, test_x, test_y, int(classes), float(scale), mean, std)


def _checked(part: tuple[ArrayLike, ArrayLike], name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if not isinstance(part, tuple | list):
        raise ArgumentTypeError(
            f"{name} of type {type(part).__name__}: must be a pair of arrays (x, y); for two data sets of rows, such "
            "as TensorDataset, give data=alma_env.from_dataset(train, test); for a file or folder, data=PATH"
        )
    if len(part) != 2:
        raise ValueError(f"{name} has {len(part)} items: must be a pair (x, y)")
    x, y = _inputs(part[0], f"{name} x"), _labels(part[1], f"{name} y")
    if len(x) != len(y):
        raise ValueError(f"{name}: {len(x)} inputs and {len(y)} labels: must be equal; pass one label per input")
    return x, y


def _array(given: ArrayLike, name: str) -> NDArray[Any]:
    if isinstance(given, Tensor):
        given = in_numpy(given)
    try:
        return np.asarray(given)
    except ValueError as error:
        reason = str(error).partition(". ")[0]
        raise ValueError(f"{name} is not an array ({reason}): all examples must have the same shape") from error


def in_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor as an array. NumPy has no bfloat16, so that they become float32."""
    tensor = tensor.detach().cpu()
    array: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _inputs(given: ArrayLike, name: str) -> NDArray[Any]:
    """Return the inputs as a C-ordered array of uint8 or float32 that nobody else changes."""
    x = _array(given, name)
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise ArgumentTypeError(f"{name} is {x.dtype}: must be uint8 or float; convert with {_conversion(x)}")
    if x.ndim < 2 or x.size == 0:
        raise ValueError(f"{name} has shape {x.shape}: must be (N, ...), with at least one example and one feature")
    _refuse_channels_last(x, name)
    _refuse_no_channels(x, name)
    fitting = x.dtype in (np.uint8, np.float32) and x.flags.c_contiguous
    if fitting and (is_mapped(x) or isinstance(given, list | tuple)):  # `asarray` has made an array of the list
        x = x.view(np.ndarray)
    else:
        with np.errstate(over="ignore"):
            x = np.array(x, dtype=np.uint8 if x.dtype == np.uint8 else np.float32, order="C")
    if x.dtype == np.float32 and not all(np.isfinite(part).all() for part in in_parts(x)):
        raise ValueError(f"{name} has NaN or infinite values in float32: remove them or rescale x")
    return x


def is_mapped(array: NDArray[Any]) -> bool:
    """Return whether an array is a memory map, or a view of one."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def _conversion(x: NDArray[Any]) -> str:
    bytes_fit = x.dtype.kind in "iu" and x.size > 0 and x.min() >= 0 and x.max() <= 255
    return "x.astype('uint8')" if bytes_fit else "x.astype('float32')"


def _refuse_channels_last(x: NDArray[Any], name: str) -> None:
    """Raise ValueError for images (N, H, W, C); floats may be something else, unless the images are square."""
    if x.ndim != 4 or x.shape[3] not in (1, 3, 4) or min(x.shape[1:3]) < 8:
        return
    if x.dtype == np.uint8 or x.shape[1] == x.shape[2]:
        raise ValueError(
            f"{name} has shape {x.shape}, images with their channels last: must be (N, C, H, W); "
            "use np.ascontiguousarray(x.transpose(0, 3, 1, 2))"
        )


def _refuse_no_channels(x: NDArray[Any], name: str) -> None:
    """Raise ValueError for grey images (N, H, W): their rows would count as channels, each with its own mean."""
    if x.dtype == np.uint8 and x.ndim == 3 and min(x.shape[1:]) >= 8:
        raise ValueError(
            f"{name} is uint8 of shape {x.shape}, images without channels: must be (N, C, H, W); use x[:, None], or "
            "for signals (N, C, L) x.astype('float32')"
        )


def _labels(given: ArrayLike, name: str) -> NDArray[np.int64]:
    y = _array(given, name)
    if y.dtype.kind not in "iufb":
        raise ArgumentTypeError(
            f"{name} is {y.dtype}: labels must be integers from 0; number the classes with "
            "names, y = np.unique(y, return_inverse=True), on train and test together"
        )
    if y.ndim == 2 and y.shape[1] > 1 and y.size and (np.count_nonzero(y, axis=1) == 1).all() and y.max() == 1:
        raise ValueError(
            f"{name} has shape {y.shape}, one-hot labels: must be (N,), the number of each class; use y.argmax(1)"
        )
    if y.ndim != 1 or len(y) == 0:
        remedy = "; use y.reshape(-1)" if y.ndim == 2 and y.shape[1] == 1 else ""
        raise ValueError(f"{name} has shape {y.shape}: must be (N,), with at least one label{remedy}")
    if y.dtype.kind not in "iu":
        if y.dtype.kind == "f" and not (np.isfinite(y).all() and (y == np.trunc(y)).all()):
            raise ArgumentTypeError(
                f"{name} is {y.dtype} with fractions, so it holds no classes: labels must be integers"
            )
        raise ArgumentTypeError(f"{name} is {y.dtype}: labels must be integers; convert with y.astype('int64')")
    y = np.array(y, dtype=np.int64)
    if y.min() < 0:
        raise ValueError(f"{name} has the label {y.min()}: labels must be 0..classes-1")
    return y


def _largest_label(train_y: NDArray[np.int64]) -> int:
    """Return the largest label, with which the number of classes grows: a predictor has one logit per class."""
    largest = int(train_y.max())
    if largest >= max(len(train_y), 2):
        raise ValueError(
            f"train y has the label {largest:,} among {len(train_y):,} labels: labels must be 0..classes-1; number the "
            "classes with names, y = np.unique(y, return_inverse=True), or pass classes="
        )
    return largest
