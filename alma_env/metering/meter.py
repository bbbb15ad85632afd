"""The meter: FLOPs of everything that PyTorch executes in a block, forward and backward.

ALMA paper, section 3: Comp. The meter listens at PyTorch's dispatcher, where each operation of the forward and of the
backward pass appears once, and charges what `alma_env.flops` says. Work that never reaches the dispatcher of its
thread leaves parameters without a seal (`alma_env.seals`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_modes

from alma_env.counting import Charges, Counting, Tally, enter_mode, exit_mode
from alma_env.once import CountOnce, cost_varies_with
from alma_env.seals import Seal, Seals, storage_id, tensors_of

__all__ = ["Charge", "Meter", "cost_varies_with", "count", "count_once", "phase", "running"]

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_PHASE = "training"

_FLOATING = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128})


class _Thread(threading.local):
    meter: Meter | None = None  # the meter that runs in this thread and is not paused


_thread = _Thread()


@dataclass(frozen=True)
class Charge:
    """FLOPs by phase; 1 multiply-add = 2 FLOPs.

    Attributes:
        flops: all FLOPs of the phase.
        forward: the counted part that autograd's backward pass did not execute. Declared FLOPs are not in it.
        declared: reasons of the charges that the learner declared because the meter could not count them.
    """

    flops: Mapping[str, int] = field(default_factory=dict)
    forward: Mapping[str, int] = field(default_factory=dict)
    declared: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """FLOPs over all phases."""
        return sum(self.flops.values())


class Meter:
    """Counts the FLOPs of `with meter:` blocks, by phase.

    A meter runs in one thread at a time and is not re-entrant. It can be copied and pickled when it is not running;
    copies know by its content what was sealed, wherever that lies now.
    """

    def __init__(self) -> None:
        self._tally = Tally(DEFAULT_PHASE)
        self._declared: list[str] = []
        self._declared_flops: dict[str, int] = {}
        self._declared_taken = 0
        self._taken = 0
        self._seals = Seals()
        self._owner: int | None = None  # the thread in which the meter runs
        self._mode: Counting | None = None
        self._total_at_entry = 0
        self._declared_in_block = False

    def __enter__(self) -> Meter:
        if self._owner is not None:
            where = "this" if self._owner == threading.get_ident() else "another"
            raise RuntimeError(
                f"the meter is running in {where} thread already: leave its `with meter:` block before entering again"
            )
        if _thread.meter is not None:
            raise RuntimeError("another meter is running in this thread: leave its `with meter:` block first")
        self._owner = threading.get_ident()
        self._begin_block()
        self._mode = Counting(self._tally, self._seals)
        enter_mode(self._mode)
        _thread.meter = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._mode is not None
        exit_mode(self._mode)
        self._mode = None
        self._owner = None
        _thread.meter = None
        self._seal()

    def _begin_block(self) -> None:
        self._total_at_entry = self.total
        self._declared_in_block = False

    def _seal(self) -> None:
        self._seals.seal(self.total > self._total_at_entry or self._declared_in_block)

    @property
    def running(self) -> bool:
        """Whether a `with meter:` block is open, in any thread."""
        return self._owner is not None

    @property
    def total(self) -> int:
        """FLOPs charged since construction or `reset`; may be set, to go on from a saved number."""
        return self._taken + self._tally.total() + self.declared_flops

    @total.setter
    def total(self, flops: int) -> None:
        self._taken += flops - self.total

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
        """Charge what runs in this block to phase `name`; the innermost phase wins.

        Raises:
            ValueError: the name is not a non-empty string.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"phase={name!r}: a phase is named by a non-empty string")
        tally = self._tally if self._mode is None else self._mode.tally
        before = tally.enter(name)
        try:
            yield
        finally:
            tally.enter(before)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Charge nothing in this block: the environment's own work. Does nothing when the meter is not running here.

        The running block's seals are closed first, so that `sealed` knows what was trained in it so far.
        """
        if _thread.meter is not self:
            yield
            return
        above = self.lift()
        try:
            self._seal()
            self._begin_block()
            yield
        finally:
            self.lower(above)

    def lift(self) -> list[TorchDispatchMode] | None:
        """Stop counting, until `lower`. Only for a meter that is running in this thread."""
        assert self._mode is not None
        _thread.meter = None
        return self._mode.lift()

    def lower(self, above: list[TorchDispatchMode] | None) -> None:
        """Go on counting; `above` is what `lift` returned."""
        assert self._mode is not None
        self._mode.lower(above)
        _thread.meter = self

    @contextmanager
    def counting(self, mode: Counting) -> Iterator[None]:
        """Let another mode count this block, with its tally and seals in place of the running meter's."""
        before, self._mode = self._mode, mode
        try:
            with disable_modes(), mode:
                yield
        finally:
            self._mode = before

    @contextmanager
    def tallying(self, tally: Tally) -> Iterator[None]:
        """Let `tally` take the FLOPs and phases of this block first. Only for a running meter."""
        assert self._mode is not None
        mode, before = self._mode, self._mode.tally
        mode.tally = tally
        try:
            yield
        finally:
            mode.tally = before
            before.add(tally.charges())

    def charge(self, charges: Charges) -> None:
        """Add FLOPs that were counted before."""
        (self._tally if self._mode is None else self._mode.tally).add(charges)

    def declare(self, flops: int, *, phase: str = DEFAULT_PHASE, reason: str) -> None:
        """Charge work that PyTorch does not execute, and say why it could not be counted.

        Raises:
            TypeError: `flops` is no integer.
            ValueError: `flops` is negative, or there is no reason or phase.
        """
        if isinstance(flops, bool) or not hasattr(flops, "__index__"):
            raise TypeError(f"flops={flops!r}: declared FLOPs must be an int; round first")
        flops = int(flops)
        if flops < 0:
            raise ValueError(f"flops={flops}: declared FLOPs must not be negative")
        for name, text in (("phase", phase), ("reason", reason)):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{name}={text!r}: a declared charge needs a phase and a reason, in words")
        self._declared.append(reason)
        self._declared_flops[phase] = self._declared_flops.get(phase, 0) + flops
        self._declared_in_block = self._declared_in_block or flops > 0

    def touch(self, *things: Any) -> None:
        """Say that tensors, or the parameters and buffers of modules, were written in the running block.

        For work that the dispatcher cannot see, such as a compiled function that updates tensors it was not given.
        """
        self.write(tensors_of(things))

    def write(self, tensors: Iterable[Tensor]) -> None:
        """`touch` for tensors, with little overhead."""
        seals = self._seals if self._mode is None or self._mode.seals is None else self._mode.seals
        for tensor in tensors:
            if tensor.dtype in _FLOATING and storage_id(tensor) not in seals.written:
                seals.write(tensor)

    def count_once(self, fn: Callable[P, R], fast: Callable[P, R] | None = None) -> CountOnce[P, R]:
        """`count_once`, charging this meter only."""
        return CountOnce(fn, fast, lambda: self if _thread.meter is self else None)

    def take(self) -> Charge:
        """Hand over what was charged since the last call, and begin anew."""
        cells = {str(phase): cell for phase, cell in self._tally.cells.items()}
        flops = {phase: sum(cell) for phase, cell in cells.items()}
        for phase, declared in self._declared_flops.items():
            flops[phase] = flops.get(phase, 0) + declared
        charge = Charge(
            {phase: count for phase, count in flops.items() if count},
            {phase: cell[0] for phase, cell in cells.items() if cell[0]},
            self.declared,
        )
        self._taken, self._declared_taken = self.total, self.declared_total
        self._tally.clear()
        self._declared, self._declared_flops = [], {}
        return charge

    def pending(self) -> dict[str, Any]:
        """What was charged since the last `take`, as plain JSON values."""
        return {
            "counted": [list(charge) for charge in self._tally.charges()],
            "declared": dict(self._declared_flops),
            "reasons": list(self._declared),
        }

    def include(self, pending: Mapping[str, Any]) -> None:
        """Charge what another meter's `pending` returned: that of a process that works on the same predictor.

        It is charged only: nothing is sealed by it, so that parameters which were written elsewhere stay refused.

        Raises:
            RuntimeError: the meter is running.
        """
        if self._owner is not None:
            raise RuntimeError("the meter is running: include charges outside of its `with meter:` block")
        self._tally.add(pending["counted"])
        for phase, declared in pending["declared"].items():
            self._declared_flops[phase] = self._declared_flops.get(phase, 0) + declared
        self._declared += pending["reasons"]

    def adopt(self, other: Meter, predictor: nn.Module) -> None:
        """Know of this predictor's parameters and buffers what another meter, which trained it, knows.

        Nothing is charged by it; see `alma_env.shared`.
        """
        for tensor in tensors_of(predictor):
            if (seal := other.sealed(tensor)) is not None:
                self._seals.adopt(tensor, seal)

    def sealed(self, tensor: Tensor) -> Seal | None:
        """What is known about the content of `tensor`; None when no metered block left it with what it holds now."""
        return self._seals.find(tensor)

    def reset(self) -> None:
        """Forget all charges and seals."""
        self._tally.clear()
        self._declared, self._declared_flops, self._declared_taken, self._taken = [], {}, 0, 0
        self._seals = Seals()
        if self._mode is not None:
            self._mode.seals = self._seals
        self._total_at_entry = 0
        self._declared_in_block = False

    def state_dict(self) -> dict[str, Any]:
        """The charges, as plain JSON values: the total, what was not taken yet, and the seals by content."""
        totals = {"total": self.total, "declared_total": self.declared_total}
        return {**totals, **self.pending(), "seals": [list(seal) for seal in self._seals.state()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            RuntimeError: the meter is running.
        """
        if self._owner is not None:
            raise RuntimeError("the meter is running: load its state outside of its `with meter:` block")
        self.reset()
        self.include(state)
        self._seals.restore(state["seals"])
        self.total = state["total"]
        self._declared_taken = state.get("declared_total", self.declared_flops) - self.declared_flops

    def __getstate__(self) -> dict[str, Any]:
        if self._owner is not None:
            raise RuntimeError("the meter is running: copy or pickle it outside of its `with meter:` block")
        return self.state_dict()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        Meter.__init__(self)
        self.load_state_dict(state)


def running() -> Meter | None:
    """The meter that is counting in this thread, or None."""
    return _thread.meter


@contextmanager
def phase(name: str) -> Iterator[None]:
    """`Meter.phase` of the meter that runs in this thread; without one, nothing."""
    meter = _thread.meter
    if meter is None:
        yield
    else:
        with meter.phase(name):
            yield


def count_once(fn: Callable[P, R], fast: Callable[P, R] | None = None) -> CountOnce[P, R]:
    """A step of fixed shape: counted once per signature, then charged per call at next to no cost in time.

    The result is called like `fn`. On its first call with a signature (shapes, dtypes, devices and `requires_grad` of
    all tensors and of the parameters of modules, training flags, values of everything else) `fn` is counted on deep
    copies of the arguments. Every call then runs `fast`, or `fn`, outside of the counter and charges the meter that is
    running in this thread, if one is. `fast` may be compiled; it must do what `fn` does.

    All that `fn` changes must be among its arguments. Its cost must not depend on the values in its tensors, but by way
    of a number that it says (`cost_varies_with`): then calls are counted in full until the number has had three
    values, which two determine and the third confirms what a call costs.

    Raises:
        RuntimeError: `fn` writes to a parameter that is not among its arguments, or its cost does not vary with the
            number that it says.
        UnknownCostError: `fn` runs an operation whose cost is unknown.
    """
    return CountOnce(fn, fast, running)


def count(fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Charge:
    """The FLOPs of one call of `fn`, whose result is dropped. A meter that is running is charged, too."""
    outer = _thread.meter
    if outer is None:
        meter = Meter()
        with meter:
            fn(*args, **kwargs)
        return meter.take()
    with outer.tallying(tally := Tally(None)):
        fn(*args, **kwargs)
    meter = Meter()
    meter.charge(tally.charges())
    return meter.take()
