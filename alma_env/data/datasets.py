"""Data sets: four arrays, their normalisation, and where they come from.

Inputs are raw (uint8 images, float32 otherwise); normalising is the predictor's business, and a `DataSet`
says how: normalised = (x / scale - mean) / std, per channel (axis 1).
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import platformdirs
import xxhash
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from alma_env import _torchvision
from alma_env.tasks import Classification

TEXT = "Text"  # name of all data that is text

# Normalisation (mean, std), per channel, of x / 255 over the train part. MNIST and CIFAR-10 are the paper's
# numbers, which EMNIST shares with MNIST; the others are the usual published ones.
_MOMENTS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "MNIST": ((0.1307,), (0.3081,)),
    "EMNIST": ((0.1307,), (0.3081,)),
    "FashionMNIST": ((0.2860,), (0.3530,)),
    "CIFAR10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
_CLASSES = {"MNIST": 10, "FashionMNIST": 10, "CIFAR10": 10, "CIFAR100": 100}
# Of 1,797: B = 10, 20, 50, 70 and 100 divide 1,400 and leave mega-batches (140, 70, 28, 20, 14) of which a
# tenth is at least one example; 397 test images resolve an error of 0.25 %.
DIGITS_TRAIN = 1_400


@dataclass(frozen=True, eq=False)
class DataSet:
    """A train part, cut into a stream, and a test part, which stays inside the environment.

    x is uint8 (N, C, H, W) for images and uint8 or float32 (N, ...) for arrays of one's own; y is int64 (N,)
    with values 0..classes-1. All arrays are made read-only, so a data set may be shared: a copy is the same
    object, and a data set that came from `load` is pickled as its name, not as its arrays.
    """

    name: str
    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    classes: int
    scale: float  # 255 for uint8 images, 1 for floats
    mean: tuple[float, ...]  # of x / scale, one per channel or one for all
    std: tuple[float, ...]
    digest: str = field(init=False)  # xxh3_128 (hex) of names, dtypes, shapes and bytes of the four arrays
    source: _Source | None = field(default=None, repr=False)

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

    held_out_valid: ClassVar[bool] = False  # a part of each mega-batch is its validation set

    @property
    def task(self) -> Classification:
        """What is asked of a predictor."""
        return Classification(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one raw input."""
        return self.train_x.shape[1:]

    def part_space(self, n: int) -> spaces.Dict:
        """Of a part of a mega-batch with n examples."""
        low, high = (0, 255) if self.train_x.dtype == np.uint8 else (-np.inf, np.inf)
        return spaces.Dict(
            {
                "x": spaces.Box(low, high, (n, *self.input_shape), self.train_x.dtype.type),
                "y": spaces.Box(0, self.classes - 1, (n,), np.int64),
            }
        )

    def protocol(self) -> dict[str, Any]:
        """All of it that scores depend on; plain JSON values."""
        return {
            "data": self.name,
            "digest": self.digest,
            "classes": self.classes,
            "scale": self.scale,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def _identity(self) -> tuple[object, ...]:
        return (self.name, self.digest, self.classes, self.scale, self.mean, self.std)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataSet) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __copy__(self) -> DataSet:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> DataSet:
        return self

    def __reduce__(self) -> tuple[Callable[..., DataSet], tuple[Any, ...]]:
        if self.source is not None:
            return _reload, (self.source, self.digest)
        arrays = (self.train_x, self.train_y, self.test_x, self.test_y)
        return DataSet, (self.name, *arrays, self.classes, self.scale, self.mean, self.std)


@dataclass(frozen=True)
class _Source:
    """How a data set was loaded; what a pickle carries in place of the arrays."""

    name: str
    root: str | None
    options: tuple[tuple[str, str], ...]
    download: bool = field(compare=False)


def load(name: str, *, root: str | Path | None = None, download: bool = True, **options: str) -> DataSet:
    """One of the benchmark's data sets by name, read once per process.

    Names: "MNIST", "FashionMNIST", "EMNIST" (split="byclass", "bymerge", "balanced", "letters", "digits" or
    "mnist"; default "byclass"), "CIFAR10", "CIFAR100", "Digits" (scikit-learn's, needs no file).

    `root` is a folder in torchvision's layout: by default the one that the environment variable ALMA_DATA
    names, or else one in the user's cache. Missing files are downloaded into it, unless `download` is False;
    when none are missing it is only read.

    Raises DataUnavailableError when files are missing or damaged and cannot be had, ValueError for an unknown
    name or option.
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r}: the data sets are {', '.join(NAMES)}; use from_arrays for your own")
    allowed = {"split": tuple(_torchvision.EMNIST_SPLITS)} if name == "EMNIST" else {}
    for option, value in options.items():
        if option not in allowed:
            raise ValueError(f"{option}={value!r}: {name} has {_listing(allowed) or 'no options'}")
        if value not in allowed[option]:
            raise ValueError(f"{option}={value!r}: must be one of {', '.join(allowed[option])}")
    given = None if root is None else str(Path(root).expanduser())
    return _load(_Source(name, given, tuple(sorted(options.items())), download))


def _listing(allowed: dict[str, tuple[str, ...]]) -> str:
    return ", ".join(f"the option {option} ({', '.join(values)})" for option, values in allowed.items())


def data_root() -> Path:
    """Where data sets are looked for and downloaded to: ALMA_DATA, or a folder in the user's cache."""
    given = os.environ.get("ALMA_DATA")
    if given:
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
            f"{data.name} with digest {data.digest}: the pickled data set had {digest}; "
            "unpickle it where the same files are found"
        )
    return data


@functools.cache
def _load_once(source: _Source, root: Path | None) -> DataSet:
    if root is None:
        return _digits(source)
    options = dict(source.options)
    files = _torchvision.layout(source.name, **options)
    train_x, train_y, test_x, test_y = _torchvision.read(files, root, download=source.download)
    name = source.name
    if name == "EMNIST":
        split = files.options["split"]
        name = f"EMNIST-{split}"
        classes = _torchvision.EMNIST_SPLITS[split][2]
        _transpose(train_x)
        _transpose(test_x)
        if split == "letters":  # numbered from 1 in the files
            train_y, test_y = train_y - 1, test_y - 1
    else:
        classes = _CLASSES[name]
    mean, std = _MOMENTS[source.name]
    return DataSet(name, train_x, train_y, test_x, test_y, classes, 255.0, mean, std, source)


def _transpose(x: NDArray[np.uint8]) -> None:
    """Swap rows and columns in place (EMNIST's files store columns first), without a copy of the set."""
    for start in range(0, len(x), 10_000):
        part = x[start : start + 10_000]
        part[:] = part.swapaxes(2, 3).copy()


def _digits(source: _Source) -> DataSet:
    from sklearn.datasets import load_digits  # slow to import, and only this set needs it

    digits = load_digits()
    # The legacy generator, because NumPy keeps its sequence for ever.
    order = np.random.RandomState(0).permutation(len(digits.target))
    x = digits.images[order].astype(np.uint8)[:, None]
    y = digits.target[order].astype(np.int64)
    n = DIGITS_TRAIN
    mean, std = _moments(x[:n], 16.0)
    return DataSet("Digits", x[:n], y[:n], x[n:], y[n:], 10, 16.0, mean, std, source)


NAMES = ("MNIST", "FashionMNIST", "EMNIST", "CIFAR10", "CIFAR100", "Digits")


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
    """A data set of one's own from (x, y) pairs, which are copied.

    x: uint8, or floats (kept as float32), of shape (N, ...), channels on axis 1; y: integers (N,).
    `classes` defaults to the largest train label + 1, `scale` to 255 for uint8 and 1 for floats, `mean` and
    `std` to those of train x / scale: per channel when x has at least 3 axes, otherwise one number for all; a given
    number holds for every channel. A channel that does not vary gets std 1.

    Raises ValueError or TypeError for arrays that do not fit together.
    """
    if name == TEXT:
        raise ValueError(f"name={name!r}: streams of text have this name; choose another")
    train_x, train_y = _checked_x(train, "train"), _checked_y(train, "train")
    test_x, test_y = _checked_x(test, "test"), _checked_y(test, "test")
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            raise ValueError(f"{part}: {len(x)} inputs, {len(y)} labels: there must be one label per input")
    if train_x.shape[1:] != test_x.shape[1:] or train_x.dtype != test_x.dtype:
        raise ValueError(
            f"test x is {test_x.dtype} {test_x.shape[1:]}, train x is {train_x.dtype} {train_x.shape[1:]}: "
            "examples of both must have one shape and dtype"
        )
    if classes is None:
        classes = int(train_y.max()) + 1
    if classes < 2:
        raise ValueError(f"classes={classes}: there must be at least 2; pass classes= if train lacks some")
    for part, y in (("train", train_y), ("test", test_y)):
        if y.max() >= classes:
            raise ValueError(
                f"{part} y has the label {y.max()}: labels must be 0..{classes - 1}; pass classes= if there are more"
            )
    if scale is None:
        scale = 255.0 if train_x.dtype == np.uint8 else 1.0
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale={scale}: must be a positive number (x is divided by it)")
    own_mean, own_std = _moments(train_x, scale) if mean is None or std is None else ((), ())
    channels = train_x.shape[1] if train_x.ndim >= 3 else 1
    mean = own_mean if mean is None else _per_channel(mean, "mean", channels)
    std = own_std if std is None else _per_channel(std, "std", channels)
    if min(std) <= 0:
        raise ValueError(f"std={std}: must be positive (inputs are divided by it)")
    return DataSet(name, train_x, train_y, test_x, test_y, classes, float(scale), mean, std)


def _checked_x(part: tuple[ArrayLike, ArrayLike], name: str) -> NDArray[Any]:
    if len(part) != 2:
        raise ValueError(f"{name} has {len(part)} items: must be a pair (x, y)")
    x = np.asarray(part[0])
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise TypeError(f"{name} x is {x.dtype}: must be uint8 or float; convert with x.astype('float32')")
    if x.ndim < 2 or x.size == 0:
        raise ValueError(f"{name} x has shape {x.shape}: must be (N, ...), with an example and a feature at least")
    with np.errstate(over="ignore"):
        x = np.array(x, dtype=np.uint8 if x.dtype == np.uint8 else np.float32, order="C")
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise ValueError(f"{name} x has NaN or infinite values in float32: clean or rescale it first")
    return x


def _checked_y(part: tuple[ArrayLike, ArrayLike], name: str) -> NDArray[np.int64]:
    y = np.asarray(part[1])
    if y.dtype.kind not in "iu":
        raise TypeError(f"{name} y is {y.dtype}: labels must be integers; convert with y.astype('int64')")
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"{name} y has shape {y.shape}: must be (N,), with one label at least")
    y = np.array(y, dtype=np.int64)
    if y.min() < 0:
        raise ValueError(f"{name} y has the label {y.min()}: labels must be 0..classes-1")
    return y


def _per_channel(value: float | Sequence[float], name: str, channels: int) -> tuple[float, ...]:
    try:
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (ValueError, TypeError):  # text, or rows of several lengths
        values = np.empty(0)
    if values.shape not in ((1,), (channels,)) or not np.isfinite(values).all():
        raise ValueError(f"{name}={value}: must be one finite number, or {channels} (one per channel)")
    return tuple(np.broadcast_to(values, channels).tolist())


def _moments(x: NDArray[Any], scale: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of x / scale, per channel (axis 1) if x has at least 3 axes."""
    channels = [x[:, c] for c in range(x.shape[1])] if x.ndim >= 3 else [x]
    mean, std = [], []
    for channel in channels:
        if x.dtype == np.uint8:  # by histogram: exact, and without a float copy of the set
            weights = np.bincount(channel.reshape(-1), minlength=256)
            values = np.arange(256) / scale
            average = float(np.average(values, weights=weights))
            deviation = float(np.sqrt(np.average((values - average) ** 2, weights=weights)))
        else:
            values = channel.astype(np.float64) / scale
            average, deviation = float(values.mean()), float(values.std())
        mean.append(average)
        std.append(deviation if deviation > 0 else 1.0)
    return tuple(mean), tuple(std)
