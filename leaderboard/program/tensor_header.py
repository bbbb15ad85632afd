"""The header of tensors in the safetensors format: dtypes, shapes and places, without the values."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import torch

from leaderboard.errors import ProgramError

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
LARGEST_HEADER = 8 * 2**20  # bytes; 60,000 tensors, and as objects of Python 25 times as much memory
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in the bytes: its dtype and shape, and where its values begin and end."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def read_header(tensors: bytes | bytearray | memoryview) -> dict[str, TensorEntry]:
    """Return the entries by name; the bytes of the values are neither read nor copied.

    The rules are those of the safetensors library: the judge must see the tensors that the evaluator loads.

    Raises:
        ProgramError: the header is malformed or too large, names a tensor twice, or does not fit the bytes.
    """
    view = memoryview(tensors)
    try:
        (length,) = _LENGTH.unpack_from(view)
        if length > len(view) - _LENGTH.size:
            raise ValueError(f"a header of {length:,} bytes in {len(view):,} bytes")
        if length > LARGEST_HEADER:
            raise ProgramError(
                f"the tensors have a header of {length:,} bytes: must have at most {LARGEST_HEADER:,}; deploy fewer "
                "tensors"
            )
        found = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]), object_pairs_hook=_unique)
        found.pop("__metadata__", None)
        first = _LENGTH.size + length
        return {name: _entry(value, first, len(view)) for name, value in found.items()}
    except ProgramError:
        raise
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProgramError(f"the tensors cannot be read: {str(error)[:200]}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProgramError("the tensors cannot be read: a name occurs twice in their header")
    return found


def _entry(value: Any, first: int, size: int) -> TensorEntry:
    dtype, shape, (start, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
    if dtype not in DTYPES:
        raise ProgramError(f"a tensor of dtype {str(dtype)[:20]}: must be one of {', '.join(DTYPES)}")
    if any(type(side) is not int or not 0 <= side < 2**63 for side in (*shape, start, end)) or len(shape) > 64:
        raise ValueError(f"a tensor of shape {str(shape)[:50]} at bytes {str((start, end))[:50]}")
    entry = TensorEntry(DTYPES[dtype], shape, first + start, first + end)
    if entry.numel * entry.dtype.itemsize != end - start or entry.end > size:
        raise ValueError(f"a tensor of {entry.numel:,} elements of {dtype} in {end - start:,} of {size:,} bytes")
    return entry
