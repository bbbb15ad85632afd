"""Data sets: four arrays and their normalisation, loaded by name.

Inputs are raw (uint8 images, float32 otherwise). The predictor normalises them with the numbers of the `DataSet`:
normalised = (x / scale - mean) / std, per channel (axis 1).
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import platformdirs
import xxhash
from gymnasium import spaces
from numpy.typing import NDArray

from alma_env.data import image_files
from alma_env.data.normalisation import PUBLISHED, moments
from alma_env.errors import ArgumentTypeError
from alma_env.scoring.tasks import Classification

TEXT = "Text"  # the name of all text data

_CLASSES = {"MNIST": 10, "FashionMNIST": 10, "CIFAR10": 10, "CIFAR100": 100}
# 1,400 of 1,797 images: B = 10, 20, 50, 70 and 100 divide 1,400, and a tenth of a mega-batch (140, 70, 28, 20, 14) has
# at least one example. The 397 test images resolve an error of 0.25 %.
DIGITS_TRAIN = 1_400
DIGITS_FOLDER = Path(__file__).resolve().parent / "digits"  # of the package; it holds the test images, too


class CopiedByReference:
    """An object that never changes: a copy of the object is the object itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self


@dataclass(frozen=True)
class DataSet(CopiedByReference):
    """A train part, which is cut into a stream, and a test part, which stays inside the environment.

    x is uint8 (N, C, H, W) for images and uint8 or float32 (N, ...) for custom arrays; y is int64 (N,) with values
    0..classes-1. All arrays are read-only, so that a data set can be shared: a copy is the same object. The pickle of a
    data set from `load` contains its name, not its arrays.
    """

    name: str
    train_x: NDArray[Any] = field(compare=False)  # the digest is compared instead
    train_y: NDArray[np.int64] = field(compare=False)
    test_x: NDArray[Any] = field(compare=False)
    test_y: NDArray[np.int64] = field(compare=False)
    classes: int
    scale: float  # 255 for uint8 images, 1 for floats
    mean: tuple[float, ...]  # of x / scale, one per channel or one for all
    std: tuple[float, ...]
    digest: str = field(init=False)  # xxh3_128 (hex) of names, dtypes, shapes and bytes of the four arrays
    source: _Source | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = xxhash.xxh3_128()
        for name in ("train_x", "train_y", "test_x", "test_y"):
            array = getattr(self, name)
            array.setflags(write=False)
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        object.__setattr__(self, "digest", digest.hexdigest())

    def __repr__(self) -> str:
        return (
            f"DataSet({self.name}: {len(self.train_y)} train, {len(self.test_y)} test, "
            f"x {self.train_x.dtype} {self.train_x.shape[1:]}, {self.classes} classes, digest {self.digest})"
        )

    held_out_valid: ClassVar[bool] = False  # each mega-batch has its own validation part

    @property
    def task(self) -> Classification:
        """The task of the predictors."""
        return Classification(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one raw input."""
        return self.train_x.shape[1:]

    def part_space(self, n: int) -> spaces.Dict:
        """Return the space of a part of a mega-batch with n examples."""
        low, high = (0, 255) if self.train_x.dtype == np.uint8 else (-np.inf, np.inf)
        return spaces.Dict(
            {
                "x": spaces.Box(low, high, (n, *self.input_shape), self.train_x.dtype.type),
                "y": spaces.Box(0, self.classes - 1, (n,), np.int64),
            }
        )

    def protocol(self) -> dict[str, Any]:
        """Return everything that scores depend on, as plain JSON values."""
        return {
            "data": self.name,
            "digest": self.digest,
            "classes": self.classes,
            "scale": self.scale,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def __reduce__(self) -> tuple[Callable[..., DataSet], tuple[Any, ...]]:
        if self.source is not None:
            return _reload, (self.source, self.digest)
        arrays = (self.train_x, self.train_y, self.test_x, self.test_y)
        return DataSet, (self.name, *arrays, self.classes, self.scale, self.mean, self.std)


@dataclass(frozen=True)
class _Source:
    """The arguments of `load`; a pickle contains them instead of the arrays."""

    name: str
    root: str | None
    options: tuple[tuple[str, str], ...]
    download: bool = field(compare=False)


def load(name: str, *, root: str | Path | None = None, download: bool = True, **options: str) -> DataSet:
    """Load one of the benchmark's data sets; it is read once per process.

    Args:
        name: "MNIST", "FashionMNIST", "EMNIST", "CIFAR10", "CIFAR100", or "Digits" (in the package).
        root: a folder in torchvision's layout; default: the folder in the environment variable ALMA_DATA, or a folder
            in the user's cache. If no file is missing, the folder is only read.
        download: whether to download missing files into `root`.
        options: for EMNIST, split="byclass" (default), "bymerge", "balanced", "letters", "digits" or "mnist".

    Raises:
        DataUnavailableError: files are missing or damaged and not available for download.
        ValueError: the name or an option is unknown.
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r}: the data sets are {', '.join(NAMES)}; use from_arrays for your own")
    splits = ", ".join(image_files.EMNIST_SPLITS)
    for option, value in options.items():
        if name != "EMNIST":
            raise ValueError(f"{option}={value!r}: {name} has no options")
        if option != "split":
            raise ValueError(f"{option}={value!r}: {name} has the option split ({splits})")
        if value not in image_files.EMNIST_SPLITS:
            raise ValueError(f"{option}={value!r}: must be one of {splits}")
    if root is not None and not isinstance(root, str | os.PathLike):
        raise ArgumentTypeError(f"root={root!r}: must be the path of a folder; use for example root='data'")
    given = None if root is None else str(Path(root).expanduser())
    return _load(_Source(name, given, tuple(sorted(options.items())), download))


def data_root() -> Path:
    """Return the default folder of data sets: ALMA_DATA, or a folder in the user's cache."""
    if given := os.environ.get("ALMA_DATA"):
        return Path(given).expanduser().resolve()
    return platformdirs.user_cache_path("alma-env", appauthor=False) / "data"


_lock = threading.Lock()


def _load(source: _Source) -> DataSet:
    root = data_root() if source.root is None else Path(source.root).resolve()
    with _lock:
        return _load_once(source, None if source.name == "Digits" else root)


def _reload(source: _Source, digest: str) -> DataSet:
    data = _load(source)
    if data.digest != digest:
        raise ValueError(
            f"{data.name} with digest {data.digest}: the pickled data set had the digest {digest}; "
            "unpickle it with the same files in its folder"
        )
    return data


@functools.cache
def _load_once(source: _Source, root: Path | None) -> DataSet:
    if root is None:
        return _digits(source)
    options = dict(source.options)
    files = image_files.layout(source.name, **options)
    train_x, train_y, test_x, test_y = image_files.read(files, root, download=source.download)
    name = source.name
    if name == "EMNIST":
        split = files.options["split"]
        name = f"EMNIST-{split}"
        classes = image_files.EMNIST_SPLITS[split][2]
        _transpose(train_x)
        _transpose(test_x)
        if split == "letters":  # the labels in the files start at 1
            train_y, test_y = train_y - 1, test_y - 1
    else:
        classes = _CLASSES[name]
    mean, std = PUBLISHED[source.name]
    return DataSet(name, train_x, train_y, test_x, test_y, classes, 255.0, mean, std, source)


def _transpose(x: NDArray[np.uint8]) -> None:
    """Swap rows and columns in place, without a copy of the set: EMNIST's files store columns first."""
    for start in range(0, len(x), 10_000):
        part = x[start : start + 10_000]
        part[:] = part.swapaxes(2, 3).copy()


def _digits(source: _Source) -> DataSet:
    with np.load(DIGITS_FOLDER / "digits.npz", allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    # The legacy generator, because NumPy guarantees that its sequence never changes.
    order = np.random.RandomState(0).permutation(len(labels))
    x = images[order].reshape(-1, 1, *images.shape[1:])  # `[:, None]` would make convolutions take it for channels last
    y = labels[order].astype(np.int64)
    n = DIGITS_TRAIN
    mean, std = moments(x[:n], 16.0)
    return DataSet("Digits", x[:n], y[:n], x[n:], y[n:], 10, 16.0, mean, std, source)


NAMES = ("MNIST", "FashionMNIST", "EMNIST", "CIFAR10", "CIFAR100", "Digits")
