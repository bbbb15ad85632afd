"""Records: what blocks left in storages, and which contents are known.

A record belongs to a storage and to its content, as a checksum. A copy of a whole storage is recognised by its content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy

from alma_env.metering.content.storages import WeakStorage, checksum, key_of, parts_of

_SAVED = 10_000  # contents of the past in a state: a learner may have a block, and some contents, for each step


@dataclass(frozen=True)
class Provenance:
    """How a metered block made the content of a tensor."""

    counted: bool  # FLOPs were counted or declared in the block
    written: bool  # an operation in the block wrote or created the tensor; otherwise the block read it, as a parameter
    foreign: str = field(default="", compare=False)  # why the meter cannot explain the content; "" if it can
    data: bool = field(default=False, compare=False)  # computed from data alone that the environment handed out


@dataclass(frozen=True)
class _Record:
    reference: WeakStorage
    content: int  # checksum
    provenance: Provenance


class Records:
    """The provenance of the storages that blocks touched and that were alive at a block's end."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}  # by `storage_id`
        self._by_content: dict[int, Provenance] = {}
        self._restored: dict[int, Provenance] = {}  # of a saved state: known by content only, without storages
        self._initial: dict[int, WeakStorage] = {}  # storages whose content was known before the first block
        self._past: dict[int, None] = {}  # contents that blocks left and that were not foreign, in this order

    def of_content(self, content: int) -> Provenance | None:
        """Return the provenance of a content, as a checksum, that is in a storage now; None if it is in none."""
        return self._by_content.get(content)

    def was_known(self, content: int) -> bool:
        """Return whether a content was in a storage at the end of a block, or before the first, and not foreign."""
        return content in self._past

    def has_storage(self, key: int) -> bool:
        """Return whether the content of a live storage was known before."""
        record = self._records.get(key)
        reference = self._initial.get(key) if record is None else record.reference
        return reference is not None and not reference.dead()

    def add(self, blocks: Iterable[tuple[int, WeakStorage, int, Provenance]]) -> None:
        """Add what a block left: for each storage its key, a reference, the checksum, and its provenance."""
        self._records = {key: old for key, old in self._records.items() if not old.reference.dead()}
        for key, reference, content, new in blocks:
            provenance = self._judge(self._records.get(key), content, new)
            self._records[key] = _Record(reference, content, provenance)
            if not provenance.foreign:
                self._past[content] = None
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

    def know(self, tensors: Iterable[Tensor]) -> None:
        """Take the present content of tensors as known: it is what a block finds before any data are there."""
        for tensor in tensors:
            for part in [] if is_lazy(tensor) else parts_of(tensor):
                key = key_of(part)
                if key is not None and key not in self._initial and part.untyped_storage().nbytes():
                    self._initial[key] = WeakStorage(part)
                    self._past[checksum(part.untyped_storage())] = None

    def know_contents(self, contents: Iterable[int]) -> None:
        """Take contents as known that the environment has accepted; by checksums of their storages."""
        for content in contents:
            self._restored[content] = self._by_content[content] = Provenance(counted=True, written=True)

    def explain(self) -> None:
        """Take all contents as explained: the work behind them was declared."""
        self._records = {
            key: replace(one, provenance=replace(one.provenance, foreign="")) for key, one in self._records.items()
        }
        self._restored = {content: replace(one, foreign="") for content, one in self._restored.items()}
        self._by_content = {content: replace(one, foreign="") for content, one in self._by_content.items()}

    def state(self) -> list[list[Any]]:
        """Return the records as plain values: checksum in hexadecimal, counted, written, foreign, data."""
        return [
            [f"{content:032x}", one.counted, one.written, *([one.foreign, one.data] if one.foreign or one.data else [])]
            for content, one in sorted(self._known().items())
        ]

    def past(self) -> list[str]:
        """Return the newest contents that blocks left and that are in no storage now: checksums in hexadecimal."""
        known = self._known()
        return [f"{content:032x}" for content in self._past if content not in known][-_SAVED:]

    def _known(self) -> dict[int, Provenance]:
        live = {record.content for record in self._records.values() if not record.reference.dead()}
        kept = live | self._restored.keys()
        return {content: one for content, one in self._by_content.items() if content in kept}

    def restore(self, state: Iterable[Iterable[Any]], past: Iterable[str] = ()) -> None:
        """Add what ``state`` and ``past`` returned; storages are then recognized by their content."""
        self._past |= dict.fromkeys(int(content, 16) for content in past)
        self._restored = {int(content, 16): Provenance(*rest) for content, *rest in state}
        self._by_content |= self._restored

    def find(self, tensor: Tensor) -> Provenance | None:
        """Return the provenance of the present content of `tensor`'s storage, or None if no block left this content.

        A copy of a whole storage has the provenance of the storage, also if the copy was made outside of the block.
        """
        key = key_of(tensor)
        if key is None or not self._by_content:
            return None
        content = checksum(tensor.untyped_storage())
        record = self._records.get(key)
        return record.provenance if record and record.content == content else self._by_content.get(content)


def _stronger(a: Provenance, b: Provenance) -> Provenance:
    return Provenance(a.counted or b.counted, a.written or b.written, a.foreign and b.foreign, a.data or b.data)
