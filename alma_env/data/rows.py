"""Custom data sets from rows: of torchvision, PyTorch and Hugging Face, larger than the memory too."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from alma_env.data.arrays import from_arrays, in_numpy
from alma_env.data.datasets import DataSet

X_COLUMNS = ("image", "img", "x", "input", "inputs", "features", "pixel_values")
Y_COLUMNS = ("label", "labels", "y", "target", "fine_label", "class")


class Rows(Protocol):
    """A data set with a length and numbered rows; a row is a pair (x, y) or a mapping from columns to values."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_dataset(
    train: Rows,
    test: Rows,
    *,
    name: str = "Arrays",
    columns: tuple[str, str] | None = None,
    folder: str | Path | None = None,
    classes: int | None = None,
    scale: float | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> DataSet:
    """Make a data set from two data sets of rows, whose inputs may be larger than the memory.

    The inputs are written to a memory-mapped file, which disappears with the data set. A ``TensorDataset`` is in
    memory already, and is copied there.

    Args:
        train: rows (x, y) as in torchvision's folders of images and in PyTorch's ``TensorDataset``, or mappings from
            columns to values as in data sets of Hugging Face. x is an image of PIL, or a tensor or an array of the
            shape of one example, uint8 or float, with channels first. y is a whole number from 0.
        test: the test part, in the same form.
        name: name of the data set.
        columns: names of the columns of x and y in mappings; None: the first of `X_COLUMNS` and of `Y_COLUMNS`.
        folder: where the file is written; None: the folder of temporary files.
        classes: number of classes; default: the largest train label + 1.
        scale: divisor of x; default: 255 for uint8 and 1 for floats.
        mean: one number for all channels, or one per channel; default: that of train x / scale, see `from_arrays`.
        std: as `mean`; default: the standard deviation of train x / scale.

    Raises:
        ValueError: a part is empty, examples differ in shape or dtype, columns are missing, or a rule of `from_arrays`
            is broken.
        TypeError: an input or a label has a type that is not supported.
        OSError: there is no space for the file.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> train, test = (TensorDataset(torch.rand(n, 3), torch.arange(n) % 2) for n in (20, 10))
    >>> from_dataset(train, test, name="Pairs").input_shape
    (3,)
    """
    parts = [_arrays(part, columns, folder, which) for part, which in ((train, "train"), (test, "test"))]
    return from_arrays(parts[0], parts[1], name=name, classes=classes, scale=scale, mean=mean, std=std)


def _arrays(
    rows: Rows, columns: tuple[str, str] | None, folder: str | Path | None, which: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    if type(rows) is TensorDataset and len(rows.tensors) == 2:  # the rows of a subclass may be other ones
        inputs, targets = map(in_numpy, rows.tensors)
        return inputs, targets
    n = _length(rows, which)
    first, _ = _pair(rows[0], columns, f"{which}[0]")
    labels = np.empty(n, np.int64)
    where = Path(tempfile.gettempdir()) if folder is None else Path(folder)
    with _reported(where, n * first.nbytes), tempfile.TemporaryFile(dir=where) as file:  # the mapping stays valid
        for index, (x, y) in enumerate(_pairs(rows, columns, which, n)):
            if x.shape != first.shape or x.dtype != first.dtype:
                raise ValueError(
                    f"{which}[{index}] is {x.dtype} {x.shape}, {which}[0] is {first.dtype} {first.shape}: all examples "
                    "must have one shape and one dtype; give the data set a transform, such as a resize"
                )
            file.write(x.tobytes())  # before it is mapped: a full disk then raises OSError, and kills nothing later
            labels[index] = y
        file.flush()
        return np.memmap(file, first.dtype, "r", shape=(n, *first.shape)), labels


@contextmanager
def _reported(folder: Path, size: int) -> Iterator[None]:
    """Add the remedy to an error of the disk; the errors of reading a row stay as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        rule = (
            f"cannot write {size:,} bytes for the inputs ({error.strerror}); give folder= on a disk with enough space"
        )
        raise OSError(error.errno, rule, str(folder)) from error


def _length(rows: Rows, which: str) -> int:
    try:
        n = len(rows)
    except TypeError:
        n = 0
    if n < 1 or not hasattr(rows, "__getitem__"):
        raise ValueError(
            f"{which} is a {type(rows).__name__} without numbered rows: must have a length of at least 1 and "
            "rows by number; materialise an iterable data set first"
        )
    return n


def _pairs(rows: Rows, columns: tuple[str, str] | None, which: str, n: int) -> Iterator[tuple[NDArray[Any], int]]:
    for index in range(n):
        yield _pair(rows[index], columns, f"{which}[{index}]")


def _pair(row: Any, columns: tuple[str, str] | None, where: str) -> tuple[NDArray[Any], int]:
    if isinstance(row, Mapping):
        x_name, y_name = columns or (_first(row, X_COLUMNS, where), _first(row, Y_COLUMNS, where))
        for name in (x_name, y_name):
            if name not in row:
                raise ValueError(f"{where} has no column {name!r}; its columns are {', '.join(map(str, row))}")
        x, y = row[x_name], row[y_name]
    elif isinstance(row, tuple | list) and len(row) == 2:
        x, y = row
    else:
        raise TypeError(
            f"{where} is a {type(row).__name__}: must be a pair (x, y), or a mapping from columns to values"
        )
    return _input(x, where), _label(y, where)


def _first(row: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    for name in names:
        if name in row:
            return name
    raise ValueError(
        f"{where} has the columns {', '.join(map(str, row))}: none of {', '.join(names)} is among them; give columns="
        "(INPUTS, LABELS)"
    )


def _input(x: Any, where: str) -> NDArray[Any]:
    """Return an input as an array; an image of PIL, whose channels are last, with channels first."""
    if hasattr(x, "getbands"):
        x = in_eight_bits(x, where)
        if x.mode not in ("L", "RGB"):
            x = _converted(x, "L" if x.mode in ("1", "LA") else "RGB", where)
        pixels = np.asarray(x)
        return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    array = in_numpy(x) if hasattr(x, "detach") else np.asarray(x)
    if array.size == 0:
        raise ValueError(f"{where}: x has shape {array.shape}: must have at least one number; correct the data set")
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise TypeError(
            f"{where}: x is a {type(x).__name__} of {array.dtype}: must be an image, or uint8 or float numbers; "
            "convert it in a transform"
        )
    return np.ascontiguousarray(array if array.dtype == np.uint8 else array.astype(np.float32))


def in_eight_bits(image: Any, where: str) -> Any:
    """Return an image of PIL whose pixels have more than 8 bits as one of mode L, and any other image as it is.

    Raises:
        ValueError: a pixel is not a whole number from 0 to 255: PIL would cut it off.
    """
    if not image.mode.startswith(("I", "F")):
        return image
    pixels = np.asarray(image)
    if not ((pixels >= 0) & (pixels <= 255) & (pixels == np.trunc(pixels))).all():  # refuses NaN, too
        raise ValueError(
            f"{where}: x is an image of mode {image.mode} with values from {pixels.min():g} to {pixels.max():g}: must "
            "be whole numbers from 0 to 255; scale and round them, or give arrays of floats"
        )
    from PIL import Image

    return Image.fromarray(pixels.astype(np.uint8))


def _converted(image: Any, mode: str, where: str) -> Any:
    try:
        return image.convert(mode)
    except ValueError as error:  # of PIL, which does not name the row
        raise ValueError(f"{where}: x is an image of mode {image.mode} ({error}); convert it in a transform") from error


def _label(y: Any, where: str) -> int:
    try:
        value = y.item() if hasattr(y, "item") else y
    except (ValueError, RuntimeError):  # several numbers
        value = y.tolist() if hasattr(y, "tolist") else y
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{where}: y is {str(value)[:40]!r}: labels must be whole numbers from 0; encode them first")
    return value
