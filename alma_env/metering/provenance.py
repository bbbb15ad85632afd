"""Provenance: which tensors hold what metered operations made.

The meter sees work only through PyTorch's dispatcher. Work in other threads and processes, in NumPy, and with disabled
dispatch modes bypasses the dispatcher, but it changes the parameters: their content then differs from the content at
the end of the metered block. The provenance of a tensor is therefore recorded together with a checksum of its storage,
at the end of each metered block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

# The address of a storage's control block: not reused as long as a weak reference to the storage is held.
storage_id: Callable[[Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]

_PRUNE_AT = 4096


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


@dataclass(frozen=True)
class Provenance:
    """How a metered block made the content of a tensor."""

    counted: bool  # FLOPs were counted or declared in the block
    written: bool  # an operation in the block wrote or created the tensor; otherwise the block read it, as a parameter


@dataclass(frozen=True)
class _Record:
    reference: WeakStorage
    content: int  # checksum
    provenance: Provenance


class ProvenanceStore:
    """Provenance of the floating-point storages that metered blocks touched and that were alive at a block's end."""

    def __init__(self) -> None:
        self.written: dict[int, WeakStorage] = {}  # by the running block, which may have created them; by `storage_id`
        self._read: dict[int, WeakStorage] = {}
        self._records: dict[int, _Record] = {}
        self._by_content: dict[int, Provenance] = {}
        self._restored: dict[int, Provenance] = {}  # of a saved state: known by content only, without storages
        self._prune_at = _PRUNE_AT

    def note_written(self, tensor: Tensor) -> None:
        """Note that the running block wrote or created `tensor`."""
        if (key := _key(tensor)) is not None and key not in self.written:
            self.written[key] = WeakStorage(tensor)
            if len(self.written) >= self._prune_at:
                # Most activations are freed soon. Pruning whenever their number may have doubled bounds the memory.
                self.written = {key: storage for key, storage in self.written.items() if not storage.dead()}
                self._prune_at = max(_PRUNE_AT, 2 * len(self.written))

    def note_foreign(self, tensor: Tensor) -> None:
        """Note that the running block overwrote `tensor` with content that the block did not make."""
        if (key := _key(tensor)) is not None:
            self.written.pop(key, None)

    def note_read(self, parameter: Tensor) -> None:
        """Note that the running block read `parameter`."""
        if (key := _key(parameter)) is not None and key not in self._read:
            self._read[key] = WeakStorage(parameter)

    def made(self, tensors: list[Tensor]) -> bool:
        """Return whether all tensors were written or created in metered blocks and have not changed since."""
        earlier = (self.find(tensor) for tensor in tensors if not self.knows(tensor))
        return all(provenance is not None and provenance.written for provenance in earlier)

    def knows(self, tensor: Tensor) -> bool:
        """Return whether the running block wrote or created `tensor`, or `tensor` is of a kind without provenance."""
        return (key := _key(tensor)) is None or key in self.written

    def end_block(self, counted: bool) -> None:
        """Record the provenance of all live storages that the block touched; `counted` as in `Provenance`."""
        touched, written = self._read | self.written, self.written
        self.written, self._read = {}, {}
        self._prune_at = _PRUNE_AT
        self._records = {key: old for key, old in self._records.items() if not old.reference.dead()}
        for key, reference in touched.items():
            storage = reference.storage()
            if storage is not None:
                content = checksum(storage)
                provenance = self._judge(self._records.get(key), content, Provenance(counted, key in written))
                self._records[key] = _Record(reference, content, provenance)
        self._by_content = dict(self._restored)
        for record in self._records.values():
            other = self._by_content.get(record.content, record.provenance)
            self._by_content[record.content] = _stronger(other, record.provenance)

    def _judge(self, before: _Record | None, content: int, new: Provenance) -> Provenance:
        if before is not None and before.content == content:
            return _stronger(before.provenance, new)  # unchanged since the last record
        same = self._by_content.get(content)
        if same is not None and (same.written or new.written):
            return _stronger(same, new)  # a copy of known content, such as the restored weights of the best epoch
        if before is not None and not new.written:
            return replace(new, counted=False)  # changed, but not by an operation that the dispatcher saw
        return _stronger(same or new, new)

    def state(self) -> list[tuple[str, bool, bool]]:
        """Return the records as plain values: checksum in hexadecimal, counted, written."""
        live = {record.content for record in self._records.values() if not record.reference.dead()}
        return [
            (f"{content:032x}", provenance.counted, provenance.written)
            for content, provenance in sorted(self._by_content.items())
            if content in live or content in self._restored
        ]

    def restore(self, state: Iterable[tuple[str, bool, bool]]) -> None:
        """Add the records that ``state`` returned; storages are then recognized by their content."""
        self._restored = {int(content, 16): Provenance(counted, written) for content, counted, written in state}
        self._by_content |= self._restored

    def find(self, tensor: Tensor) -> Provenance | None:
        """Return the provenance of the present content of `tensor`'s storage, or None if no block left this content.

        A copy of a whole storage has the provenance of the storage, also if the copy was made outside of the block.
        """
        key = _key(tensor)
        if key is None or not self._by_content:
            return None
        content = checksum(tensor.untyped_storage())
        record = self._records.get(key)
        return record.provenance if record and record.content == content else self._by_content.get(content)


def _key(tensor: Tensor) -> int | None:
    """Return the `storage_id`; None without floating-point content: integer, `meta`, sparse and opaque tensors."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return None
    try:
        return storage_id(tensor)
    except (NotImplementedError, RuntimeError):
        return None


def _stronger(a: Provenance, b: Provenance) -> Provenance:
    return Provenance(a.counted or b.counted, a.written or b.written)


def checksum(storage: torch.UntypedStorage) -> int:
    """Return a 128-bit checksum of the bytes of a storage; a storage on another device is first copied to the host."""
    with torch.no_grad():
        content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy()
    return xxhash.xxh3_128_intdigest(content.data)


def tensors_of(things: Any) -> list[Tensor]:
    """Return all tensors in (nested) lists, tuples and dictionaries, and the parameters and buffers of modules."""
    if isinstance(things, Tensor):
        return [things]
    if isinstance(things, nn.Module):
        return [*things.parameters(), *things.buffers()]
    if isinstance(things, dict):
        things = things.values()
    elif not isinstance(things, list | tuple | set):
        return []
    return [tensor for thing in things for tensor in tensors_of(thing)]
