"""The examples of several mega-batches as one: the union of Algorithm 1, over which a stage trains."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.training.stage import Examples
from alma_env.data.arrays import is_mapped

Part = Mapping[str, NDArray[Any]]  # "x" and "y"


def join_parts(parts: Sequence[Part]) -> Examples:
    """Return the examples of all parts, one part after another.

    Arrays that are memory-mapped from files are joined in a new memory-mapped file, since a text may be larger than the
    memory. The file is in the folder of temporary files and disappears with the last tensor that uses it.

    Raises:
        OSError: there is no space for that file.
    """
    return Examples(*(_joined([part[name] for part in parts]) for name in ("x", "y")))


def _joined(arrays: list[NDArray[Any]]) -> Tensor:
    first = arrays[0]
    if len(arrays) == 1:
        return torch.from_numpy(first)
    if not is_mapped(first):
        return torch.from_numpy(np.concatenate(arrays))
    try:
        with tempfile.TemporaryFile() as file:  # the mapping stays valid after the file is closed
            # Written before it is mapped: a full disk then raises OSError here instead of killing the process later.
            for array in arrays:
                for start in range(0, len(array), _ROWS):
                    file.write(array[start : start + _ROWS].tobytes())
            file.flush()
            shape = (sum(map(len, arrays)), *first.shape[1:])
            return torch.from_numpy(np.memmap(file, first.dtype, "r+", shape=shape))
    except OSError as error:
        size = sum(array.nbytes for array in arrays)
        raise OSError(
            f"{tempfile.gettempdir()}: cannot write a file of {size:,} bytes for {len(arrays)} mega-batches "
            f"({error}); set TMPDIR to a folder on a disk with enough space"
        ) from error


_ROWS = 4096  # rows copied at a time, which limits the memory needed
