"""New memory of the running block: storages without content, and storages that were made PyTorch's with any content.

Freed memory holds what its last user left in it. The block fills new memory without content with zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alma_env.metering.content.storages import WeakStorage, in_memory, key_of, sample
from alma_env.metering.content.touched import as_bytes


class NewMemory:
    """The storages, by `storage_id`, that no operation has written since they appeared in the block."""

    def __init__(self) -> None:
        self._empty: dict[int, tuple[WeakStorage, int | None]] = {}  # and a sample of the zeros
        self._lifted: dict[int, WeakStorage] = {}

    def add_empty(self, key: int, tensor: Tensor) -> None:
        """Fill a new storage with zeros and add it."""
        _clear(tensor.untyped_storage())
        self._empty[key] = WeakStorage(tensor), sample(tensor)

    def add_lifted(self, key: int, tensor: Tensor) -> None:
        """Add a storage that may hold what no operation wrote."""
        if not self.is_empty(tensor):
            self._lifted[key] = WeakStorage(tensor)
            self._empty.pop(key, None)

    def is_empty(self, tensor: Tensor) -> bool:
        """Return whether the block created a storage without content, and nothing wrote to it since."""
        key = key_of(tensor)
        empty = None if key is None else self._empty.get(key)
        return empty is not None and sample(tensor) == empty[1]

    def has_empty(self, key: int) -> bool:
        """Return whether the block created a storage without content."""
        return key in self._empty

    def take(self, key: int, tensor: Tensor) -> tuple[bool, bool]:
        """Remove a storage; return whether it was lifted, and whether it is empty."""
        empty = self._empty.pop(key, None) is not None and _is_zero(tensor.untyped_storage())
        return self._lifted.pop(key, None) is not None, empty

    def drop(self, key: int) -> None:
        """Remove a storage that an operation wrote."""
        self._empty.pop(key, None)
        self._lifted.pop(key, None)

    def clear_growth(self, key: int, tensor: Tensor, size: int) -> None:
        """Fill the bytes of a storage beyond `size` with zeros."""
        _clear(tensor.untyped_storage(), size)
        if key in self._empty:
            self._empty[key] = WeakStorage(tensor), sample(tensor)

    def left(self) -> list[tuple[int, WeakStorage, Tensor]]:
        """Return the key, a reference and the bytes of each storage that is alive."""
        references = {key: reference for key, (reference, _) in self._empty.items()} | self._lifted
        storages = [(key, one, one.storage()) for key, one in references.items()]
        return [(key, one, as_bytes(memory)) for key, one, memory in storages if memory is not None and memory.nbytes()]

    def prune(self) -> None:
        """Remove the storages that have been freed."""
        self._empty = {key: one for key, one in self._empty.items() if not one[0].dead()}
        self._lifted = {key: one for key, one in self._lifted.items() if not one.dead()}


def _clear(storage: torch.UntypedStorage, start: int = 0) -> None:
    if in_memory(storage):
        as_bytes(storage)[start:].zero_()


def _is_zero(storage: torch.UntypedStorage) -> bool:
    return not (in_memory(storage) and bool(as_bytes(storage).any()))
