"""Seals: which tensors hold what was computed while the meter ran.

The meter sees work only through PyTorch's dispatcher. Work in other threads and processes, in NumPy and with dispatch
modes disabled leaves no trace there, but it leaves one in the parameters: their content is then not what it was when
the metered block ended. A seal is a checksum of a storage, taken at the end of a metered block.
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
    """Keeps the address of a storage's control block from being used again, but not its memory."""

    __slots__ = ("key",)

    def __init__(self, tensor: Tensor) -> None:
        self.key: int = tensor.untyped_storage()._weak_ref()  # type: ignore[assignment]

    def dead(self) -> bool:
        """Whether the storage is gone."""
        return bool(torch.UntypedStorage._expired(self.key))

    def storage(self) -> torch.UntypedStorage | None:
        """The storage, unless it is gone."""
        return torch.UntypedStorage._new_with_weak_ptr(self.key)

    def __del__(self, free: Callable[[int], None] = torch.UntypedStorage._free_weak_ref) -> None:
        free(self.key)  # bound early: at the interpreter's exit `torch` may be empty already


@dataclass(frozen=True)
class Seal:
    """What is known about the content of a tensor.

    Attributes:
        counted: FLOPs were counted or declared in the metered block that made this content.
        written: an operation in the block wrote or created it; otherwise the block only read it, as a parameter.
    """

    counted: bool
    written: bool


@dataclass(frozen=True)
class _Record:
    reference: WeakStorage
    content: int
    seal: Seal


class Seals:
    """Records the floating-point storages that a block touches, and seals those that are alive when it ends.

    Attributes:
        written: storages that the running block wrote or created, by `storage_id`, held weakly.
    """

    def __init__(self) -> None:
        self.written: dict[int, WeakStorage] = {}
        self._read: dict[int, WeakStorage] = {}
        self._records: dict[int, _Record] = {}
        self._by_content: dict[int, Seal] = {}
        self._restored: dict[int, Seal] = {}  # of a saved state: content whose storages are not at hand
        self._prune_at = _PRUNE_AT

    def write(self, tensor: Tensor) -> None:
        """Note that the running block wrote or created `tensor`."""
        if (key := _sealable(tensor)) is not None and key not in self.written:
            self.written[key] = WeakStorage(tensor)
            if len(self.written) >= self._prune_at:
                # Activations die young: forgetting the dead whenever their number may have doubled bounds the memory.
                self.written = {key: storage for key, storage in self.written.items() if not storage.dead()}
                self._prune_at = max(_PRUNE_AT, 2 * len(self.written))

    def forget(self, tensor: Tensor) -> None:
        """Note that the running block overwrote `tensor` with something that it did not make."""
        if (key := _sealable(tensor)) is not None:
            self.written.pop(key, None)

    def made(self, tensors: list[Tensor]) -> bool:
        """Whether all of these were written or created under the meter, in this block or, as they are, before it."""
        for tensor in tensors:
            key = _sealable(tensor)
            if key is None or key in self.written:
                continue
            seal = self.find(tensor)
            if seal is None or not seal.written:
                return False
        return True

    def read(self, parameter: Tensor) -> None:
        """Note that the running block read `parameter`."""
        if (key := _sealable(parameter)) is not None and key not in self._read:
            self._read[key] = WeakStorage(parameter)

    def knows(self, tensor: Tensor) -> bool:
        """Whether the running block wrote or created `tensor`, or it is of a kind that is never sealed."""
        return (key := _sealable(tensor)) is None or key in self.written

    def seal(self, counted: bool) -> None:
        """End the block: seal what it touched and is alive. `counted` says whether it counted any FLOPs."""
        touched = {**self._read, **self.written}
        written = self.written
        self.written, self._read = {}, {}
        self._prune_at = _PRUNE_AT
        self._records = {key: old for key, old in self._records.items() if not old.reference.dead()}
        for key, reference in touched.items():
            storage = reference.storage()
            if storage is not None:
                content = checksum(storage)
                seal = self._judge(self._records.get(key), content, Seal(counted, key in written))
                self._records[key] = _Record(reference, content, seal)
        self._by_content = dict(self._restored)
        for record in self._records.values():
            other = self._by_content.get(record.content)
            self._by_content[record.content] = record.seal if other is None else _stronger(other, record.seal)

    def _judge(self, before: _Record | None, content: int, seal: Seal) -> Seal:
        if before is not None and before.content == content:
            return _stronger(before.seal, seal)  # unchanged since it was sealed
        same = self._by_content.get(content)
        if same is not None and (same.written or seal.written):
            return _stronger(same, seal)  # a copy of sealed content, such as the best epoch's weights restored
        if before is not None and not seal.written:
            return replace(seal, counted=False)  # changed, and no operation that the dispatcher saw did it
        return seal if same is None else _stronger(same, seal)

    def adopt(self, tensor: Tensor, seal: Seal) -> None:
        """Know what another meter's block has left in `tensor`."""
        key = _sealable(tensor)
        if key is not None:
            content = checksum(tensor.untyped_storage())
            self._records[key] = _Record(WeakStorage(tensor), content, seal)
            self._by_content[content] = seal

    def state(self) -> list[tuple[str, bool, bool]]:
        """What is sealed, as plain values: checksum in hexadecimal, counted, written."""
        live = {record.content for record in self._records.values() if not record.reference.dead()}
        return [
            (f"{content:032x}", seal.counted, seal.written)
            for content, seal in sorted(self._by_content.items())
            if content in live or content in self._restored
        ]

    def restore(self, state: Iterable[tuple[str, bool, bool]]) -> None:
        """Know again the content that ``state`` told of, wherever it lies now."""
        self._restored = {int(content, 16): Seal(counted, written) for content, counted, written in state}
        self._by_content |= self._restored

    def find(self, tensor: Tensor) -> Seal | None:
        """The seal of what the storage of `tensor` holds now, or None when no block left it with this content.

        A copy of a whole sealed storage, made anywhere, counts as sealed.
        """
        key = _sealable(tensor)
        if key is None or not self._by_content:
            return None
        content = checksum(tensor.untyped_storage())
        record = self._records.get(key)
        return record.seal if record and record.content == content else self._by_content.get(content)


def _sealable(tensor: Tensor) -> int | None:
    """The storage's key; None where there is no floating-point content: integers, `meta`, sparse, opaque tensors."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return None
    try:
        return storage_id(tensor)
    except (NotImplementedError, RuntimeError):
        return None


def _stronger(a: Seal, b: Seal) -> Seal:
    return Seal(a.counted or b.counted, a.written or b.written)


def checksum(storage: torch.UntypedStorage) -> int:
    """A 128-bit checksum of the bytes of a storage, copied to the host first where it is elsewhere."""
    with torch.no_grad():
        content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy()
    return xxhash.xxh3_128_intdigest(content.data)


def tensors_of(things: Any) -> list[Tensor]:
    """All tensors in (nested) lists, tuples and dictionaries, and the parameters and buffers of modules."""
    if isinstance(things, Tensor):
        return [things]
    if isinstance(things, nn.Module):
        return [*things.parameters(), *things.buffers()]
    if isinstance(things, dict):
        things = things.values()
    elif not isinstance(things, list | tuple | set):
        return []
    return [tensor for thing in things for tensor in tensors_of(thing)]
