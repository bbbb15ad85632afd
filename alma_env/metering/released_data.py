"""Data that the environment handed out: the meter recognises it, whatever array or tensor holds it.

Recognised are the arrays of mega-batches: whole and joined in any order, parts of them, selected examples with their
labels, and the whole arrays in another scale (a factor and a shift for each channel), as normalised images are.
Other work on data outside of PyTorch must be declared, because an array could hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = 16  # bytes at the start of an array, by which it is found in a longer one
_SHORTEST_ROW = 8  # bytes: shorter examples could spell anything
_CHANNELS = 4  # most channels with a scale of their own
_CLOSE = 1e-4  # largest difference of rescaled values, relative to the largest one


@dataclass(frozen=True)
class _Released:
    array: NDArray[Any]
    digest: int  # of the content that was handed out: the array may have changed since
    labels: NDArray[Any] | None  # of its examples

    def unchanged(self) -> bool:
        return _hash(_flat(self.array)) == self.digest


class ReleasedData:
    """What was handed out in an episode. It refers to the arrays and does not copy them."""

    def __init__(self) -> None:
        self._arrays: list[_Released] = []
        self._lengths: dict[bytes, set[int]] = {}  # of known arrays in bytes, by their head
        self._digests: set[int] = set()  # of known arrays
        self._rows: dict[int, dict[int, bytes]] = {}  # by length: the label of each example, by its hash
        self._rows_done = 0  # arrays whose rows are known

    def add(self, observation: Mapping[str, Any]) -> None:
        """Add the arrays of a mega-batch: ``x`` and ``y`` of its parts."""
        for part in observation.values():
            if isinstance(part, Mapping):
                self._add(part["x"], part["y"] if len(part["y"]) == len(part["x"]) else None)
                self._add(part["y"], None)

    def _add(self, array: NDArray[Any], labels: NDArray[Any] | None) -> None:
        digest = self._remember(_flat(array))
        if digest is not None:
            self._arrays.append(_Released(array, digest, labels))

    def _remember(self, content: NDArray[np.uint8]) -> int | None:
        """Remember the content of an array; return its hash, or None if it is known."""
        digest = _hash(content)
        if digest in self._digests:
            return None
        self._digests.add(digest)
        self._lengths.setdefault(content[:_HEAD].tobytes(), set()).add(len(content))
        return digest

    def recognises(self, content: NDArray[np.uint8], dtype: np.dtype[Any] | None) -> bool:
        """Return whether bytes, which are values of `dtype`, are data that was handed out."""
        return bool(len(content) and self._arrays) and (
            self._is_joined(content)
            or self._is_part(content)
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

    def _is_part(self, content: NDArray[np.uint8]) -> bool:
        """Return whether the bytes are a part of an array without rows, such as labels."""
        needle = content.tobytes()
        flat = (one for one in self._arrays if one.array.ndim == 1 and one.array.nbytes > len(needle))
        return any(_flat(one.array).tobytes().find(needle) >= 0 and one.unchanged() for one in flat)

    def _is_examples(self, content: NDArray[np.uint8]) -> bool:
        """Return whether the bytes are examples, one after another; their labels are then known, too."""
        for one in self._arrays[self._rows_done :]:
            if one.array.ndim > 1 and len(one.array) and one.unchanged():
                self._learn_rows(one)
        self._rows_done = len(self._arrays)
        for length, rows in self._rows.items():
            if len(content) % length == 0:
                labels = [rows.get(digest) for digest in _row_hashes(content, length)]
                if None not in labels:
                    joined = b"".join(label for label in labels if label is not None)
                    if joined:
                        self._remember(np.frombuffer(joined, np.uint8))
                    return True
        return False

    def _learn_rows(self, one: _Released) -> None:
        content = _flat(one.array)
        length = len(content) // len(one.array)
        if length < _SHORTEST_ROW:
            return
        hashes = list(_row_hashes(content, length))
        if one.labels is None:
            labels = [b""] * len(hashes)
        else:
            size = one.labels.nbytes // len(one.labels)
            own = _flat(one.labels).tobytes()
            labels = [own[start : start + size] for start in range(0, len(own), size)]
        self._rows.setdefault(length, {}).update(zip(hashes, labels, strict=True))

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
                part = values[start : start + one.array.size]
                if (
                    one.array.ndim > 1
                    and len(part) == one.array.size
                    and _is_affine(one.array, part)
                    and one.unchanged()
                ):
                    self._remember(part.view(np.uint8))
                    start, expected = start + len(part), number + 1
                    break
            else:
                return False
        return True


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
    largest = max(abs(float(y[low])), abs(float(y[high])))
    few = slice(0, 64)  # most arrays are refused by a few values
    return all(
        bool((np.abs(factor * x[part].astype(np.float64) + shift - y[part]) <= _CLOSE * largest).all())
        for part in (few, slice(None))
    )


def _flat(array: NDArray[Any]) -> NDArray[np.uint8]:
    flat: NDArray[np.uint8] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat
