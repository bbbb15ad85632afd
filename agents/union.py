"""Several mega-batches as one set of examples."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.stage import Examples

Part = Mapping[str, NDArray[Any]]


def union(parts: Sequence[Part]) -> Examples:
    """The examples of all parts, one part after another.

    Arrays that are mapped into memory from files stay so: a text may be larger than the memory. Their union is a file
    of its own, which goes when the last tensor on it does.
    """
    return Examples(*(_joined([part[name] for part in parts]) for name in ("x", "y")))


def _joined(arrays: list[NDArray[Any]]) -> Tensor:
    first = arrays[0]
    if len(arrays) == 1:
        return torch.from_numpy(first)
    if not _mapped(first):
        return torch.from_numpy(np.concatenate(arrays))
    with tempfile.TemporaryFile() as file:  # the mapping outlives the name and the handle
        joined = np.memmap(file, first.dtype, "w+", shape=(sum(map(len, arrays)), *first.shape[1:]))
    end = 0
    for array in arrays:
        for start in range(0, len(array), _ROWS):
            rows = array[start : start + _ROWS]
            joined[end : end + len(rows)] = rows
            end += len(rows)
    return torch.from_numpy(joined)


_ROWS = 4096  # at a time, so that no more is held


def _mapped(array: NDArray[Any] | None) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base if isinstance(array.base, np.ndarray) else None
    return array is not None
