"""Which scalars of a program are new, from digests of its tensors: the judge does not keep the programs themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from leaderboard.program.tensor_header import TensorEntry, read_header

BLOCK_BYTES = 4096  # the digests take 1/512 of the program's memory


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
    return {name: _digests(entry, view[entry.start : entry.end]) for name, entry in read_header(tensors).items()}


def _digests(entry: TensorEntry, values: memoryview) -> TensorDigests:
    blocks = [xxhash.xxh3_64_intdigest(values[at : at + BLOCK_BYTES]) for at in range(0, len(values), BLOCK_BYTES)]
    return TensorDigests((str(entry.dtype), entry.shape), entry.numel, np.array(blocks, np.uint64))


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
