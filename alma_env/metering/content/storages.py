"""Storages: the memory of tensors, which the provenance of their content is recorded for."""

from __future__ import annotations

import ctypes
import functools
import gc
import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
import xxhash
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

# The address of a storage's control block: not reused as long as a weak reference to the storage is held.
storage_id: Callable[[Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]

_PLAIN_TENSORS = (Tensor, nn.Parameter)
_SAMPLE = 4096  # most bytes of a storage that a sample reads
_PLACE = random.SystemRandom().random()  # where the sample of a larger storage lies, as a fraction


class WeakStorage:
    """A weak reference to a storage: reserves the address of its control block, but does not keep its memory."""

    __slots__ = ("key",)

    def __init__(self, tensor: Tensor) -> None:
        self.key: int = tensor.untyped_storage()._weak_ref()  # type: ignore[assignment]

    def dead(self) -> bool:
        """Return whether the storage has been freed."""
        return bool(torch.UntypedStorage._expired(self.key))

    def storage(self) -> torch.UntypedStorage | None:
        """Return the storage, or None if it has been freed."""
        return torch.UntypedStorage._new_with_weak_ptr(self.key)

    def __del__(self, free: Callable[[int], None] = torch.UntypedStorage._free_weak_ref) -> None:
        free(self.key)  # a default argument: at the interpreter's exit `torch` may be empty already


def key_of(tensor: Tensor) -> int | None:
    """Return the `storage_id`; None for tensors without a storage of their own: `meta`, sparse and opaque ones."""
    if tensor.is_meta or type(tensor) is FakeTensor:
        return None
    try:
        return storage_id(tensor)
    except (NotImplementedError, RuntimeError):
        return None


def checksum(storage: torch.UntypedStorage) -> int:
    """Return a 128-bit checksum of the bytes of a storage; a storage on another device is first copied to the host."""
    return xxhash.xxh3_128_intdigest(bytes_of(storage))


def contents_of(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Return the different checksums of the storages of tensors; tensors without a storage have none."""
    return tuple({checksum(tensor.untyped_storage()) for tensor in tensors if key_of(tensor)})


def bytes_of(storage: torch.UntypedStorage) -> Any:
    """Return a buffer of the bytes of a storage: its memory, or on another device a copy on the host."""
    if storage.device.type == "cpu":
        size = storage.nbytes() if in_memory(storage) else 0
        return _memory(storage, 0, size) if size else b""
    with torch.no_grad():
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy().data


def in_memory(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage has memory: the zeros of forward differentiation, for example, have none."""
    try:
        return bool(storage.data_ptr())
    except RuntimeError:
        return False


def _memory(storage: torch.UntypedStorage, start: int, size: int) -> Any:
    return _bytes_type(size).from_address(storage.data_ptr() + start)


@functools.lru_cache(maxsize=1024)
def _bytes_type(size: int) -> Any:
    return ctypes.c_char * size  # kept, because making a type takes longer than a checksum


def sample(tensor: Tensor) -> int | None:
    """Return a checksum of a small part of a tensor's storage; None on other devices, where reading it would wait.

    The meter compares samples between two operations, where a checksum of everything would take too long.
    """
    if not tensor.is_cpu:
        return None
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if not size:
        return None
    start, length = (0, size) if size <= _SAMPLE else (int(_PLACE * (size - _SAMPLE)), _SAMPLE)
    try:
        return xxhash.xxh3_64_intdigest(_memory(storage, start, length), seed=size)  # a storage that grew is another
    except RuntimeError:  # not in memory
        return None


def version_of(tensor: Tensor) -> int | None:
    """Return how often PyTorch wrote to a tensor in place; None if PyTorch does not count it."""
    try:
        return tensor._version
    except RuntimeError:  # a tensor of the inference mode
        return None


def is_opaque(tensor: Tensor) -> bool:
    """Return whether a tensor has content that only its own library can read."""
    return bool(tensor.is_mkldnn)


def covers(tensor: Tensor) -> bool:
    """Return whether a tensor spans its whole storage, with each element at a place of its own."""
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
        return False
    return tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that hold the content of a tensor: a sparse tensor has indices and values."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def tensors_of(things: Any) -> list[Tensor]:
    """Return all tensors in (nested) lists, tuples and dictionaries, and the parameters and buffers of modules."""
    if isinstance(things, Tensor):
        return [things]
    if isinstance(things, nn.Module):
        return [*nn.Module.parameters(things), *nn.Module.buffers(things)]
    if isinstance(things, dict):
        things = things.values()
    elif not isinstance(things, list | tuple | set):
        return []
    return [tensor for thing in things for tensor in tensors_of(thing)]


def all_tensors() -> list[Tensor]:
    """Return all tensors of this process."""
    # A tensor refers to its class, and few other objects do: half the time of a loop over all objects.
    return [thing for thing in gc.get_referrers(*_PLAIN_TENSORS) if type(thing) in _PLAIN_TENSORS]
