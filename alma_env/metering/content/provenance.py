"""Provenance: which tensors hold what metered operations made.

The meter sees work only through PyTorch's dispatcher. Work in other threads and processes, in NumPy, and with disabled
dispatch modes bypasses the dispatcher, but it leaves content that no metered operation made. The store compares the
content of a storage with what it knows (`known_content`): when a metered block first reads or writes the storage, and
at the block's end. Content that it cannot explain is *foreign*, and so is what operations compute from it, until
work is declared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from alma_env.metering.content.beside import Beside, owners_of, written_beside
from alma_env.metering.content.content_flow import Flow, flow_of
from alma_env.metering.content.known_content import UNCHARGED, UNKNOWN, KnownContent
from alma_env.metering.content.new_memory import NewMemory
from alma_env.metering.content.records import Provenance
from alma_env.metering.content.storages import (
    WeakStorage,
    covers,
    is_opaque,
    key_of,
    parts_of,
    sample,
    tensors_of,
    version_of,
)
from alma_env.metering.content.touched import FEW, Inputs, Touched, numbers_written, selects_examples

_PRUNE_AT = 4096
_COPY = flow_of(torch.ops.aten.copy_.default)


class ProvenanceStore:
    """What the running block does to storages, and what is known from before."""

    def __init__(self) -> None:
        self.touched: dict[int, Touched] = {}  # by the running block; by `storage_id`
        self.known = KnownContent()
        self._new = NewMemory()
        self._hidden: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensors without a storage, and why they are foreign
        self._prune_at = _PRUNE_AT
        self.beside = Beside()  # written by functions that the running block did not see

    # --- the running block ---------------------------------------------------------------------

    def inputs(self, flow: Flow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
        """Look at what an operation is about to read, and at what it will change in part."""
        found, only_data, only_few, selected = Inputs(), True, True, False
        if flow.pairs:
            found.pairs = [self.inputs(_COPY, pair, {}) for pair in zip(args[0], args[1], strict=True)]
            return found
        if flow.lifts:
            found.before = self._known_size(args)
        for number, tensor in enumerate(flow.read(args, kwargs)):
            found.anything = True
            for one in self._known(tensor) or self._look_at(tensor):
                if isinstance(one, str):
                    found.foreign = found.foreign or one
                    continue
                if flow.selects and selected and one.foreign:
                    continue  # which examples are chosen, and in which order, is not content
                if number == 0 and flow.selects:
                    one.released = one.released or (one.data and self.known.are_labels(tensor))
                    selected = selects_examples(one, args)
                found.foreign = found.foreign or one.foreign
                found.made = found.made and (one.made or one.written)
                found.data |= one.data
                only_data &= one.data or tensor.numel() <= FEW or selected
                if flow.into_parts is not None and tensor is not args[flow.into_parts]:
                    continue  # the places, and what keeps its content
                few = tensor.numel() <= FEW
                if flow.joins:
                    found.numbers += min(one.numbers, tensor.numel()) if few else 0
                else:
                    found.numbers = max(found.numbers, one.numbers)
                    only_few &= few or one.numbers > 0
        found.data &= only_data
        found.numbers *= only_few
        if found.numbers > FEW and not self.known.explained:
            found.foreign = found.foreign or UNKNOWN
        if flow.overwrites:
            for tensor in flow.written(args, kwargs):
                # What `out=` names may become smaller than its storage, which then keeps the rest of its content.
                if (flow.writes_named or not covers(tensor)) and not self._new.is_empty(tensor):
                    for _ in self._look_at(tensor):
                        pass
        return found

    def outputs(self, flow: Flow, inputs: Inputs, out: Any, written: Iterable[Tensor], args: tuple[Any, ...]) -> None:
        """Note what an operation created and wrote, from what it read."""
        if flow.pairs:
            for to, source, one in zip(args[0], args[1], inputs.pairs, strict=True):
                self.outputs(_COPY, one, None, (to,), (to, source))
            return
        if flow.lifts:
            self._keep_grown(args, inputs)
            for tensor in tensors_of(out):
                if not (len(args) > 1 and args[1] is args[0]):  # `set_` to what the tensor has already
                    self._lift(tensor)
            return
        if flow.creates:
            for tensor in tensors_of(out):
                if flow.unwritten and is_opaque(tensor):
                    tensor.zero_()
                *places, values = parts_of(tensor)  # `empty_like` writes the places of a sparse tensor
                for part in places:
                    self._create(part, flow._replace(unwritten=False), inputs)
                self._create(values, flow, inputs)
        for tensor in written:
            if flow.unwritten:
                tensor.zero_()
            for part in parts_of(tensor):
                self._write(part, flow, inputs, args)

    def _known(self, tensor: Tensor) -> tuple[Touched] | None:
        """Return what the block knows of a tensor in the usual case, that nothing happened to it; otherwise None."""
        key = key_of(tensor)
        touched = None if key is None else self.touched.get(key)
        if touched is None or (touched.sample is not None and sample(tensor) != touched.sample):
            return None
        return (touched,)

    def _look_at(self, tensor: Tensor) -> Iterable[Touched | str]:
        """Yield what the block knows of a tensor that is about to be read."""
        key = key_of(tensor)
        if key is None:
            for part in parts_of(tensor):
                if part is not tensor:
                    yield from self._look_at(part)
                elif tensor in self._hidden:
                    yield from filter(None, [self._hidden[tensor]])
                elif is_opaque(tensor) and not self.known.explained:
                    yield UNKNOWN
            return
        if self.beside:
            self._look_beside()
        touched = self.touched.get(key)
        if touched is None:
            touched = self._first_look(key, tensor, WeakStorage(tensor))
        elif touched.sample is not None and sample(tensor) != touched.sample:
            self._look_again(key, tensor, touched)
        yield touched

    def _first_look(self, key: int, tensor: Tensor, reference: WeakStorage) -> Touched:
        touched = self.touched[key] = Touched(reference)
        lifted, empty = self._new.take(key, tensor)
        self.known.judge(key, tensor, touched, lifted=lifted)
        touched.written = lifted or empty
        self._prune()
        return touched

    def _look_beside(self) -> None:
        for tensor, foreign, changed in self.beside.take():
            if not changed:
                self.note_written(tensor, foreign)
            elif (key := key_of(tensor)) is not None and self._known(tensor) is None:  # not by an operation
                touched = self.touched.setdefault(key, Touched(WeakStorage(tensor)))
                self._look_again(key, tensor, touched)

    def _look_again(self, key: int, tensor: Tensor, touched: Touched) -> None:
        """Judge content that changed between two operations of the block."""
        before = touched.foreign
        self.known.judge(key, tensor, touched, changed=True)
        touched.foreign = touched.foreign or before

    def _create(self, tensor: Tensor, flow: Flow, inputs: Inputs) -> None:
        key = key_of(tensor)
        if key is None:
            self._hide(tensor, inputs)
            return
        touched = self.touched.get(key)
        if flow.unwritten and touched is None:
            self._new.add_empty(key, tensor)
            return
        if touched is None:
            touched = self.touched[key] = Touched(WeakStorage(tensor))
            touched.foreign, touched.data, touched.numbers = inputs.foreign, inputs.data, inputs.numbers
        else:
            touched.foreign = touched.foreign or inputs.foreign
        touched.written = flow.copies is None or inputs.made
        touched.made = touched.written
        touched.sample = None if flow.leaves else sample(tensor)
        self._prune()

    def _write(self, tensor: Tensor, flow: Flow, inputs: Inputs, args: tuple[Any, ...]) -> None:
        key = key_of(tensor)
        if key is None:
            self._hide(tensor, inputs)
            return
        touched = self.touched.get(key)
        whole = covers(tensor)
        if touched is None:
            touched = self.touched[key] = Touched(self._new_reference(key, tensor))
        if flow.overwrites and whole:
            touched.foreign, touched.numbers, touched.data = inputs.foreign, inputs.numbers, inputs.data
        else:
            touched.foreign = touched.foreign or inputs.foreign
            touched.data &= inputs.data
            if not whole or flow.into_parts is not None:
                most = tensor.untyped_storage().nbytes() // tensor.element_size()
                touched.numbers = min(most, touched.numbers + numbers_written(touched, tensor, flow, inputs, args))
            else:
                touched.numbers = max(touched.numbers, inputs.numbers)
            if touched.numbers > FEW and not self.known.explained:
                touched.foreign = touched.foreign or UNKNOWN
        # Copying does not give weights that no operation made a provenance.
        touched.written = touched.made = flow.copies is None or inputs.made
        touched.released = False
        touched.sample = None if flow.leaves else sample(tensor)

    def _hide(self, tensor: Tensor, inputs: Inputs) -> None:
        if inputs.foreign or is_opaque(tensor):
            self._hidden[tensor] = inputs.foreign

    def _new_reference(self, key: int, tensor: Tensor) -> WeakStorage:
        self._new.drop(key)
        return WeakStorage(tensor)

    def _known_size(self, args: tuple[Any, ...]) -> tuple[int, int] | None:
        """Return the key and the bytes of the first argument's storage; None if the block does not know its content."""
        tensor = args[0] if args else None
        if not isinstance(tensor, Tensor) or (key := key_of(tensor)) is None:
            return None
        known = self._known(tensor) is not None or self._new.is_empty(tensor)
        return (key, tensor.untyped_storage().nbytes()) if known else None

    def _keep_grown(self, args: tuple[Any, ...], inputs: Inputs) -> None:
        """Keep what is known of a storage that an operation enlarged."""
        if inputs.before is not None:
            key, size = inputs.before
            if key_of(args[0]) == key and args[0].untyped_storage().nbytes() > size:
                self._new.clear_growth(key, args[0], size)
                if (touched := self.touched.get(key)) is not None:
                    touched.sample, touched.content = sample(args[0]), None

    def _lift(self, tensor: Tensor) -> None:
        for part in parts_of(tensor):
            key = key_of(part)
            if key is not None and key not in self.touched:
                self._new.add_lifted(key, part)

    def _prune(self) -> None:
        if len(self.touched) >= self._prune_at:
            # Most activations are freed soon. Pruning whenever their number may have doubled bounds the memory.
            self.touched = {key: one for key, one in self.touched.items() if not one.reference.dead()}
            self._new.prune()
            self._prune_at = max(_PRUNE_AT, 2 * len(self.touched))

    def look_at_all(self, tensors: Iterable[Tensor]) -> tuple[list[tuple[Touched, Tensor, int | None]], str]:
        """Look at the tensors that a function is about to read and write; return why one is foreign, or ""."""
        found: list[tuple[Touched, Tensor, int | None]] = []
        foreign = ""
        for tensor in tensors:
            for one in self._known(tensor) or self._look_at(tensor):
                if isinstance(one, str):
                    foreign = foreign or one
                else:
                    found.append((one, tensor, version_of(tensor)))
                    foreign = foreign or one.foreign
        return found, foreign

    def look_beside(self, parameters: Iterable[Tensor], optimizers: Iterable[Optimizer]) -> str:
        """Look at the gradients and states that a function is about to read; return why one is foreign, or ""."""
        owners = [one for one in owners_of(parameters, optimizers) if not self.beside.holds(one)]
        return self.look_at_all(part for one in owners for part in written_beside(one))[1]

    def note_all(self, found: list[tuple[Touched, Tensor, int | None]], foreign: str) -> None:
        """Note that a function wrote what `look_at_all` found."""
        for one, tensor, version in found:
            before, one.sample = one.sample, None if key_of(tensor) is None else sample(tensor)
            one.written = one.made = True
            if version is None or version_of(tensor) != version or one.sample != before:  # it did not only read it
                one.released = one.data = False
            if foreign and not self.known.explained:
                one.foreign = foreign

    def note_written(self, tensor: Tensor, foreign: str = "") -> None:
        """Note that the running block wrote or created `tensor`, by operations that it did not see."""
        key = key_of(tensor)
        if key is None:
            return
        touched = self.touched.get(key)
        if touched is None:
            touched = self.touched[key] = Touched(self._new_reference(key, tensor))
            self._prune()
        self.note_all([(touched, tensor, None)], foreign)

    def note_copies(self, originals: Iterable[Tensor], copies: Iterable[Tensor]) -> None:
        """Note copies that were made where the block did not see it."""
        for original, copy in zip(originals, copies, strict=True):
            key, content = key_of(copy), sample(copy)
            if key is None or content != sample(original):
                continue  # the first look judges it
            for one in self._known(original) or self._look_at(original):
                if isinstance(one, Touched):
                    touched = self.touched[key] = Touched(self._new_reference(key, copy))
                    touched.foreign, touched.data, touched.numbers = one.foreign, one.data, one.numbers
                    touched.written = touched.made = one.made or one.written
                    touched.sample = content
        self._prune()

    def touch(self, tensors: Iterable[Tensor], charged: bool) -> None:
        """Note work on tensors that the dispatcher did not see; it needs a charge, and explains nothing before it."""
        for tensor in tensors:
            key = key_of(tensor)
            if key is not None and key not in self.touched and not self._new.has_empty(key):
                self._first_look(key, tensor, WeakStorage(tensor))
            self.note_written(tensor, "" if charged else UNCHARGED)

    # --- between blocks ------------------------------------------------------------------------

    def end_block(self, counted: bool) -> None:
        """Record the provenance of all live storages that the block touched; `counted` as in `Provenance`."""
        self._look_beside()
        for key, reference, memory in self._new.left():
            if key not in self.touched:
                self._first_look(key, memory, reference)
        touched, self.touched, self._new = self.touched, {}, NewMemory()
        self._prune_at = _PRUNE_AT
        left = []
        for key, one in touched.items():
            storage = one.reference.storage()
            if storage is None or (one.released and not one.written):  # the environment's own array
                continue
            content = one.content
            if one.written or content is None:
                content = self.known.last_look(storage, one)
            left.append((key, one.reference, content, Provenance(counted, one.written, one.foreign, one.data)))
        self.known.records.add(left)

    def explain(self) -> None:
        """Take everything as explained, until the charge is taken: work that the meter cannot see was declared."""
        self.known.explained = True
        for one in self.touched.values():
            one.foreign = ""
        self._hidden.update(dict.fromkeys(self._hidden, ""))
        self.known.records.explain()
