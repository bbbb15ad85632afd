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
    of its own, in the folder of temporary files, which goes when the last tensor on it does.

    Raises:
        OSError: there is no room for that file.
    """
    return Examples(*(_joined([part[name] for part in parts]) for name in ("x", "y")))


def _joined(arrays: list[NDArray[Any]]) -> Tensor:
    first = arrays[0]
    if len(arrays) == 1:
        return torch.from_numpy(first)
    if not _mapped(first):
        return torch.from_numpy(np.concatenate(arrays))
    try:
        with tempfile.TemporaryFile() as file:  # the mapping outlives the name and the handle
            # Written, not only mapped: a disk that is full then is an error here, and not the end of the process later.
            for array in arrays:
                for start in range(0, len(array), _ROWS):
                    file.write(array[start : start + _ROWS].tobytes())
            file.flush()
            shape = (sum(map(len, arrays)), *first.shape[1:])
            return torch.from_numpy(np.memmap(file, first.dtype, "r+", shape=shape))
    except OSError as error:
        size = sum(array.nbytes for array in arrays)
        raise OSError(
            f"{tempfile.gettempdir()}: no file of {size:,} bytes for {len(arrays)} mega-batches can be made there "
            f"({error}); have TMPDIR name a folder on a disk with room"
        ) from error


_ROWS = 4096  # at a time, so that no more is held


def _mapped(array: NDArray[Any] | None) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base if isinstance(array.base, np.ndarray) else None
    return array is not None
