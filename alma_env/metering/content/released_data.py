"""Data that the environment handed out: the meter recognises it, whatever array or tensor holds it.

The meter recognises the arrays of mega-batches: whole and joined in any order, selected examples, labels in any order,
and the whole arrays in another scale (a factor and a shift for each channel), as normalised images are.
Other work on data outside of PyTorch must be declared, because an array could hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = 16  # bytes at the start of an array, by which it is found in a longer one
_SHORTEST_ROW = 8  # bytes: shorter examples could spell anything
_CHANNELS = 4  # most channels with a scale of their own
_ROUNDINGS = 4  # most rounding errors in a rescaled value


@dataclass(frozen=True)
class _Released:
    shape: tuple[int, ...]
    digest: int  # of the content that was handed out: the array may have changed since
    array: NDArray[Any] | None  # what was handed out; None if it is a map, which would keep a file open
    again: Callable[[], NDArray[Any]] | None  # reads the content again

    def original(self) -> NDArray[Any] | None:
        """Return the array as it was handed out; None if the learner has changed it and it cannot be read again."""
        if self.array is not None and _hash(_flat(self.array)) == self.digest:
            return self.array
        return None if self.again is None else self.again()


class ReleasedData:
    """What was handed out in an episode. It refers to the arrays, or reads them again, and does not copy them."""

    def __init__(self) -> None:
        self._arrays: list[_Released] = []
        self._lengths: dict[bytes, set[int]] = {}  # of known arrays in bytes, by their head
        self._digests: set[int] = set()  # of known arrays
        self._labels: dict[np.dtype[Any], NDArray[Any]] = {}  # the different ones
        self._rows: dict[int, set[int]] = {}  # hashes of examples, by length
        self._rows_done = 0  # arrays whose rows are known

    def add(self, observation: Mapping[str, Any], again: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Add ``x`` and ``y`` of the parts of a mega-batch; `again` returns the mega-batch in new arrays."""
        for part, arrays in observation.items():
            if isinstance(arrays, Mapping):
                for name in ("x", "y"):
                    self._add(arrays[name], None if again is None else partial(_read, again, part, name))

    def _add(self, array: NDArray[Any], again: Callable[[], NDArray[Any]] | None) -> None:
        digest, is_new = self._remember(_flat(array))
        if is_new:
            kept = None if again is not None and isinstance(array, np.memmap) else array
            self._arrays.append(_Released(array.shape, digest, kept, again))
            if array.ndim == 1:
                self._labels[array.dtype] = np.union1d(self._labels.get(array.dtype, array), array)

    def _remember(self, content: NDArray[np.uint8]) -> tuple[int, bool]:
        """Remember the content of an array; return its hash, and whether it is new."""
        digest = _hash(content)
        is_new = digest not in self._digests
        self._digests.add(digest)
        self._lengths.setdefault(content[:_HEAD].tobytes(), set()).add(len(content))
        return digest, is_new

    def recognises(self, content: NDArray[np.uint8], dtype: np.dtype[Any] | None) -> bool:
        """Return whether bytes, which are values of `dtype`, are data that was handed out."""
        return bool(len(content) and self._arrays) and (
            self._is_joined(content)
            or self._is_labels(content)
            or self._is_examples(content)
            or self._is_scaled(content, dtype)
        )

    def _whole(self, content: NDArray[np.uint8], start: int) -> Iterator[int]:
        """Yield the lengths of the known arrays that lie at `start`, the longest first."""
        for length in sorted(self._lengths.get(content[start : start + _HEAD].tobytes(), ()), reverse=True):
            part = content[start : start + length]
            if len(part) == length and _hash(part) in self._digests:
                yield length

    def _is_joined(self, content: NDArray[np.uint8]) -> bool:
        start = 0
        while start < len(content):
            length = next(self._whole(content, start), None)
            if length is None:
                return False
            start += length
        return True

    def _is_labels(self, content: NDArray[np.uint8]) -> bool:
        """Return whether the bytes are known labels, in any order and number: as those of selected examples."""
        few = slice(0, 64)  # most arrays are refused by a few values
        return any(
            len(content) % dtype.itemsize == 0
            and all(bool(np.isin(content.view(dtype)[part], known).all()) for part in (few, slice(None)))
            for dtype, known in self._labels.items()
        )

    def _is_examples(self, content: NDArray[np.uint8]) -> bool:
        """Return whether the bytes are examples, one after another."""
        for one in self._arrays[self._rows_done :]:
            if len(one.shape) > 1 and one.shape[0] and (array := one.original()) is not None:
                length = array.nbytes // len(array)
                if length >= _SHORTEST_ROW:
                    self._rows.setdefault(length, set()).update(_row_hashes(_flat(array), length))
        self._rows_done = len(self._arrays)
        return any(
            len(content) % length == 0 and all(digest in rows for digest in _row_hashes(content, length))
            for length, rows in self._rows.items()
        )

    def _is_scaled(self, content: NDArray[np.uint8], dtype: np.dtype[Any] | None) -> bool:
        """Return whether the values are those of whole arrays in another scale; these are then known, too."""
        if dtype is None or dtype.kind != "f" or len(content) % dtype.itemsize:
            return False
        values, start, expected = content.view(dtype), 0, 0
        while start < len(values):
            length = next(self._whole(content, start * dtype.itemsize), None)
            if length is not None:
                start += length // dtype.itemsize
                continue
            for turn in range(len(self._arrays)):
                number = (expected + turn) % len(self._arrays)
                one = self._arrays[number]
                size = math.prod(one.shape)
                part = values[start : start + size]
                if len(one.shape) < 2 or len(part) < size or (array := one.original()) is None:
                    continue
                if _is_affine(array, part):
                    self._remember(part.view(np.uint8))
                    start, expected = start + len(part), number + 1
                    break
            else:
                return False
        return True


def _read(again: Callable[[], Mapping[str, Any]], part: str, name: str) -> NDArray[Any]:
    array: NDArray[Any] = again()[part][name]
    return array


def _hash(content: NDArray[np.uint8]) -> int:
    return xxhash.xxh3_128_intdigest(memoryview(content))  # type: ignore[arg-type]


def _row_hashes(content: NDArray[np.uint8], length: int) -> Iterator[int]:
    view = memoryview(content)  # type: ignore[arg-type]
    for start in range(0, len(content), length):
        yield xxhash.xxh3_128_intdigest(view[start : start + length])


def _is_affine(x: NDArray[Any], values: NDArray[Any]) -> bool:
    """Return whether `values` are `factor * x + shift`, with one factor and one shift for each of a few channels."""
    channels = x.shape[1] if x.ndim > 2 and x.shape[1] <= _CHANNELS else 1
    by_channel = (len(x) if channels > 1 else 1, channels, -1)
    old, new = x.reshape(by_channel).swapaxes(0, 1), values.reshape(by_channel).swapaxes(0, 1)
    return all(_is_line(own.ravel(), other.ravel()) for own, other in zip(old, new, strict=True))


def _is_line(x: NDArray[Any], y: NDArray[Any]) -> bool:
    low, high = int(x.argmin()), int(x.argmax())
    if x[low] == x[high]:
        return bool((y == y[0]).all())
    factor = (float(y[high]) - float(y[low])) / (float(x[high]) - float(x[low]))
    shift = float(y[low]) - factor * float(x[low])
    if not np.isfinite(factor) or not np.isfinite(shift) or factor == 0:
        return False
    largest = max(abs(float(y[low])), abs(float(y[high]))) + abs(shift)
    single = y.dtype == np.float64 and bool((y == y.astype(np.float32)).all())  # computed in float32
    close = _ROUNDINGS * float(np.finfo(np.float32 if single else y.dtype).eps) * largest
    few = slice(0, 64)  # most arrays are refused by a few values
    return all(
        bool((np.abs(factor * x[part].astype(np.float64) + shift - y[part]) <= close).all())
        for part in (few, slice(None))
    )


def _flat(array: NDArray[Any]) -> NDArray[np.uint8]:
    flat: NDArray[np.uint8] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat
