"""Which scalars of a program are new, from digests of its tensors: the judge does not keep the programs themselves."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from leaderboard.errors import ProgramError

BLOCK_BYTES = 4096  # the digests take 1/512 of the program's memory
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class TensorDigests:
    """A tensor without its values.

    Attributes:
        kind: dtype and shape.
        scalars: number of its scalars.
        blocks: xxh3_64 of each block of `BLOCK_BYTES` bytes, shape (blocks,), uint64.
    """

    kind: tuple[str, tuple[int, ...]]
    scalars: int
    blocks: NDArray[np.uint64]


def tensor_digests(tensors: bytes | bytearray | memoryview) -> dict[str, TensorDigests]:
    """Return the digests of the tensors in the safetensors format, by name; the bytes are not copied.

    Raises:
        ProgramError: the bytes are not in this format.
    """
    view = memoryview(tensors)
    try:
        (length,) = _LENGTH.unpack_from(view)
        header = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]))
        values = view[_LENGTH.size + length :]
        return {name: _digests(entry, values) for name, entry in header.items() if name != "__metadata__"}
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProgramError(f"the tensors cannot be read: {str(error)[:200]}") from error


def _digests(entry: Any, values: memoryview) -> TensorDigests:
    shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
    if any(type(side) is not int or side < 0 for side in (*shape, start, end)) or not start <= end <= len(values):
        raise ValueError(f"a tensor of shape {str(shape)[:50]} at bytes {str((start, end))[:50]} of {len(values):,}")
    scalars = math.prod(shape)
    if scalars > 8 * (end - start):
        raise ValueError(f"a tensor of {scalars:,} scalars in {end - start:,} bytes")
    own = values[start:end]
    blocks = [xxhash.xxh3_64_intdigest(own[at : at + BLOCK_BYTES]) for at in range(0, len(own), BLOCK_BYTES)]
    return TensorDigests((str(entry["dtype"]), shape), scalars, np.array(blocks, np.uint64))


def changed_scalars(before: Mapping[str, TensorDigests], now: Mapping[str, TensorDigests]) -> int:
    """Return the number of scalars in blocks that differ from the previous program; a new tensor counts as a whole."""
    changed = 0
    for name, tensor in now.items():
        other = before.get(name)
        if other is None or other.kind != tensor.kind:
            changed += tensor.scalars
        elif differing := int(np.count_nonzero(other.blocks != tensor.blocks)):
            changed += math.ceil(tensor.scalars * differing / len(tensor.blocks))
    return changed
