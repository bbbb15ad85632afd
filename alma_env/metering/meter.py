"""The meter: FLOPs of everything that PyTorch executes in a block, forward and backward.

ALMA paper, section 3: Comp. The meter listens at PyTorch's dispatcher, where each operation of the forward and of the
backward pass appears once, and charges the cost in `alma_env.metering.costs`. Work that bypasses the dispatcher of
the meter's thread leaves parameters without provenance (`alma_env.metering.content.provenance`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_modes

from alma_env.metering.content.provenance import ProvenanceStore
from alma_env.metering.content.records import Provenance
from alma_env.metering.content.storages import tensors_of
from alma_env.metering.dispatch_mode import Copies, CountingMode, enter_mode, exit_mode
from alma_env.metering.tally import Charge, Charges, Tally, whole_flops

DEFAULT_PHASE = "training"


class _Thread(threading.local):
    meter: Meter | None = None  # the meter that runs in this thread and is not paused


_thread = _Thread()


class Meter:
    """Counts the FLOPs of `with meter:` blocks, by phase.

    A meter runs in one thread at a time and is not re-entrant. It can be copied and pickled while it is not running; a
    copy recognizes tensors by their content, wherever the content is stored.
    """

    def __init__(self) -> None:
        self._tally = Tally(DEFAULT_PHASE)
        self._owner: int | None = None  # the thread in which the meter runs
        self._mode: CountingMode | None = None
        self.reset()

    def reset(self) -> None:
        """Delete all charges and all provenance."""
        self._tally.clear()
        self._declared: list[str] = []
        self._declared_flops: Counter[str] = Counter()
        self._declared_taken = self._taken = self._total_at_entry = 0
        self._total_at_touch = 0
        self._provenance = ProvenanceStore()
        if self._mode is not None:
            self._mode.provenance = self._provenance

    def __enter__(self) -> Meter:
        if self._owner is not None:
            where = "this" if self._owner == threading.get_ident() else "another"
            raise RuntimeError(
                f"the meter is running in {where} thread already: leave its `with meter:` block before entering again"
            )
        if _thread.meter is not None:
            raise RuntimeError("another meter is running in this thread: leave its `with meter:` block first")
        self._owner = threading.get_ident()
        self._total_at_entry = self.total
        self._mode = CountingMode(self._tally, self._provenance)
        enter_mode(self._mode)
        _thread.meter = self
        return self

    def __exit__(self, *error: object) -> None:
        assert self._mode is not None
        exit_mode(self._mode)
        self._mode = None
        self._owner = None
        _thread.meter = None
        self._provenance.end_block(self.total > self._total_at_entry)

    @property
    def running(self) -> bool:
        """Whether a `with meter:` block is open, in any thread."""
        return self._owner is not None

    @property
    def total(self) -> int:
        """FLOPs charged since construction or `reset`; can be set once, to continue from a saved total."""
        return self._taken + self._tally.total() + self.declared_flops

    @total.setter
    def total(self, flops: int) -> None:
        if self.total:
            raise ValueError(f"total={flops!r}: the meter has charged {self.total} FLOPs already; reset it first")
        self._taken = whole_flops(flops)

    @property
    def declared(self) -> tuple[str, ...]:
        """Reasons of the charges declared since the last `take`."""
        return tuple(self._declared)

    @property
    def declared_flops(self) -> int:
        """FLOPs declared since the last `take`."""
        return sum(self._declared_flops.values())

    @property
    def declared_total(self) -> int:
        """FLOPs declared since construction or `reset`."""
        return self._declared_taken + self.declared_flops

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the work in this block to phase `name`; in nested blocks, the innermost phase is charged.

        Raises:
            ValueError: the name is not a non-empty string.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"phase={name!r}: must be a non-empty string; use, for example, phase('training')")
        tally = self._tally if self._mode is None else self._mode.tally
        before = tally.enter(name)
        try:
            yield
        finally:
            tally.enter(before)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not charge the work in this block, which is the environment's. No effect if the meter is not running here.

        The running metered block ends at the pause and another one starts after it, so that `provenance` covers what
        was trained before the pause.
        """
        if _thread.meter is not self:
            yield
            return
        above = self.suspend()
        try:
            self._provenance.end_block(self.total > self._total_at_entry)
            self._total_at_entry = self.total
            yield
        finally:
            self.resume(above)

    def suspend(self) -> list[TorchDispatchMode] | None:
        """Stop counting until `resume`. The meter must be running in this thread."""
        assert self._mode is not None
        _thread.meter = None
        return self._mode.suspend()

    def resume(self, above: list[TorchDispatchMode] | None) -> None:
        """Continue counting; `above` is the return value of `suspend`."""
        assert self._mode is not None
        self._mode.resume(above)
        _thread.meter = self

    @contextmanager
    def count_with(self, mode: CountingMode) -> Iterator[None]:
        """Count this block with another mode: its tally and provenance replace those of the running meter."""
        before, self._mode = self._mode, mode
        try:
            with disable_modes(), mode:
                yield
        finally:
            self._mode = before

    @contextmanager
    def count_into(self, tally: Tally) -> Iterator[None]:
        """Count this block into `tally`, and add the counts to the meter at the end. The meter must be running."""
        assert self._mode is not None
        mode, before = self._mode, self._mode.tally
        mode.tally = tally
        try:
            yield
        finally:
            mode.tally = before
            before.add(tally.charges(), tally.registered)

    def charge(self, charges: Charges, registered: Iterable[str] = ()) -> None:
        """Add FLOPs that were counted before, and the registered operations that were counted.

        Raises:
            TypeError: FLOPs are not an integer.
            ValueError: FLOPs are negative.
        """
        (self._tally if self._mode is None else self._mode.tally).add(charges, registered)

    def declare(self, flops: int, *, phase: str = DEFAULT_PHASE, reason: str) -> None:
        """Charge work that PyTorch does not execute.

        Args:
            flops: FLOPs of the work.
            phase: the phase to charge.
            reason: why the meter could not count the work; stored in the ledger.

        Raises:
            TypeError: `flops` is not an integer.
            ValueError: `flops` is negative, or the reason or the phase is missing.
        """
        flops = whole_flops(flops)
        for name, text in (("phase", phase), ("reason", reason)):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{name}={text!r}: must be a non-empty string; pass a phase and a reason as text")
        self._declared.append(reason)
        self._declared_flops[phase] += flops
        if flops:
            self._provenance.explain()

    def touch(self, *things: Any) -> None:
        """Report that tensors, or the parameters and buffers of modules, were written in the running block.

        For work that the dispatcher cannot see, such as a compiled function that updates tensors that are not among its
        arguments.
        """
        tensors = tensors_of(things)
        if isinstance(content := self.content, Copies):
            content.note_all(tensors, "")
            return
        # At least one multiply-add for each number.
        charged = self.total - self._total_at_touch >= 2 * sum(tensor.numel() for tensor in tensors)
        self._total_at_touch = self.total
        content.touch(tensors, charged)

    @property
    def content(self) -> ProvenanceStore | Copies:
        """What is known of the content of tensors; in a function that is counted on copies, of the copies."""
        return self._provenance if self._mode is None or self._mode.provenance is None else self._mode.provenance

    def note_data(self, observation: Mapping[str, Any], again: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Note that the environment hands out a mega-batch: its arrays are no work of the learner.

        `again` returns the mega-batch in new arrays, for the case that the learner changes those that it got.
        """
        self._provenance.known.data.add(observation, again)

    def note_initial(self, tensors: Iterable[Tensor]) -> None:
        """Note the content that tensors have before the learner gets any data."""
        self._provenance.known.records.know(tensors)

    def note_accepted(self, contents: Iterable[int]) -> None:
        """Note the contents of storages, as checksums, that the environment accepted after a declaration."""
        self._provenance.known.records.know_contents(contents)

    def take(self) -> Charge:
        """Return what was charged since the last call, and start counting from zero."""
        counts = {str(phase): pair for phase, pair in self._tally.counts.items()}
        flops = Counter({phase: sum(pair) for phase, pair in counts.items()})
        flops.update(self._declared_flops)
        charge = Charge(
            {phase: count for phase, count in flops.items() if count},
            {phase: forward for phase, (forward, _) in counts.items() if forward},
            self.declared,
            tuple(sorted(self._tally.registered)),
        )
        self._taken, self._declared_taken = self.total, self.declared_total
        self._tally.clear()
        self._declared, self._declared_flops = [], Counter()
        self._provenance.known.explained = False
        return charge

    def pending(self) -> dict[str, Any]:
        """Return what was charged since the last `take`, as plain JSON values."""
        return {
            "counted": [list(charge) for charge in self._tally.charges()],
            "declared": dict(self._declared_flops),
            "reasons": list(self._declared),
            "registered": sorted(self._tally.registered),
        }

    def include(self, pending: Mapping[str, Any]) -> None:
        """Charge the `pending` charges of another meter, whose process works on the same predictor.

        Provenance is not included: parameters that were written in the other process are still refused.

        Raises:
            RuntimeError: the meter is running.
            TypeError: FLOPs are not an integer.
            ValueError: FLOPs are negative. Nothing is included.
        """
        self.require_stopped("include charges")
        declared = {phase: whole_flops(flops) for phase, flops in pending["declared"].items()}
        self._tally.add(pending["counted"], pending.get("registered", ()))
        self._declared_flops.update(declared)
        self._declared += pending["reasons"]

    def provenance(self, tensor: Tensor) -> Provenance | None:
        """Return how metered blocks made the content of `tensor`; None if no block left it with this content.

        Integers have none here; `made` has them.
        """
        floating = tensor.is_floating_point() or tensor.is_complex()
        return self._provenance.known.records.find(tensor) if floating else None

    def made(self, tensor: Tensor) -> Provenance | None:
        """Return how metered blocks made the content of a tensor of any kind; see `provenance`."""
        return self._provenance.known.records.find(tensor)

    def state_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the totals, the pending charges, and what is known of contents."""
        totals = {"total": self.total, "declared_total": self.declared_total}
        return {
            **totals,
            **self.pending(),
            "seals": [list(record) for record in self._provenance.known.records.state()],
            "past": self._provenance.known.records.past(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that `state_dict` returned.

        Raises:
            RuntimeError: the meter is running.
            ValueError: the totals of the state are less than its pending charges.
        """
        self.require_stopped("load its state")
        self.reset()
        self.include(state)
        self._provenance.known.records.restore(state["seals"], state.get("past", ()))
        self._taken = whole_flops(state["total"] - self.total)
        self._declared_taken = whole_flops(state.get("declared_total", self.declared_flops) - self.declared_flops)

    def require_stopped(self, to_do: str) -> None:
        """Raise RuntimeError, with what was to be done, if the meter is running."""
        if self._owner is not None:
            raise RuntimeError(f"the meter is running: {to_do} outside of its `with meter:` block")

    def __getstate__(self) -> dict[str, Any]:
        self.require_stopped("copy or pickle it")
        return self.state_dict()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        Meter.__init__(self)
        self.load_state_dict(state)


def running() -> Meter | None:
    """Return the meter that is counting in this thread, or None."""
    return _thread.meter


@contextmanager
def uncharged() -> Iterator[None]:
    """Do not charge the work in this block, which is the environment's, to the meter that runs in this thread."""
    with nullcontext() if _thread.meter is None else _thread.meter.paused():
        yield


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Charge the work in this block to phase `name` of the meter that runs in this thread, if there is one."""
    with nullcontext() if _thread.meter is None else _thread.meter.phase(name):
        yield
