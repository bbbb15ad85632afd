"""The cost of functions: `count` counts one call, `count_once` counts one call per signature and charges all calls.

The cost of a step may depend on the data, for example by the number of tokens that a Switch layer drops. Such a step
reports this number (`cost_varies_with`). A few calls with different numbers are counted in full; the cost of all other
calls follows from them.
"""

from __future__ import annotations

import copy
import functools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes as disable_modes

from alma_env.metering.call_signature import Held, signature
from alma_env.metering.content.backward_passes import passes
from alma_env.metering.content.known_content import UNCHARGED
from alma_env.metering.content.storages import tensors_of
from alma_env.metering.dispatch_mode import Copies, CountingMode
from alma_env.metering.meter import Meter, running
from alma_env.metering.registries import new_registries
from alma_env.metering.tally import Charge, Charges, Phase, Tally

P = ParamSpec("P")
R = TypeVar("R")

# Parts of all signatures whose costs a function keeps. A network that grows at each tick has signatures of thousands of
# parts, none of which comes again, and the garbage collector would visit all of them.
_MOST_PARTS = 200_000


def count(fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Charge:
    """Return the FLOPs of one call of `fn`; its result is dropped. A running meter is charged, too."""
    meter, outer = Meter(), running()
    if outer is None:
        with meter:
            fn(*args, **kwargs)
    else:
        with outer.count_into(tally := Tally(None)):
            fn(*args, **kwargs)
        meter.charge(tally.charges(), tally.registered)
    return meter.take()


def count_once(fn: Callable[P, R]) -> CountedOnce[P, R]:
    """Return a function that is counted once per signature, and then charged per call almost without overhead.

    The result is called like `fn`. The signature of a call consists of the shapes, dtypes, layouts, devices and
    `requires_grad` of all tensors and of the parameters of modules, of training flags, and of the values of all other
    arguments. At the first call with a signature, `fn` is counted on deep copies of the arguments. Every call then runs
    `fn` without counting, and charges the meter that is running in this thread, if there is one. If the signatures get
    too large together, as those of a network that grows at each tick, the function forgets its costs, and counts again.

    All that `fn` changes must be among its arguments. The cost of `fn` must not depend on the values in its tensors,
    with one exception: it may be an affine function of a number that `fn` reports (`cost_varies_with`). Calls are then
    counted in full until three different numbers were reported: two determine the function, the third confirms it.

    Raises:
        RuntimeError: `fn` writes to a parameter that is not among its arguments, or its cost is not an affine function
            of the number that it reports.
        UnknownCostError: `fn` runs an operation whose cost is unknown.
    """
    return CountedOnce(fn)


class _Thread(threading.local):
    numbers: list[int] | None = None  # reported by the innermost counted-once function that runs in this thread


_thread = _Thread()


def cost_varies_with(number: int) -> None:
    """Report, inside a function of `count_once`, a number that the cost of this call depends on.

    An example is the number of rows of a matrix product, where the data determine the rows. For all calls with one
    signature, the FLOPs must be a + b · (sum of the numbers reported in the call). Outside of `count_once` this does
    nothing.
    """
    if _thread.numbers is not None:
        _thread.numbers.append(number)


@contextmanager
def _reported_numbers(*, forward_to_outer: bool) -> Iterator[list[int]]:
    """Collect the numbers reported in this block; `forward_to_outer` reports them to the enclosing function, too."""
    outer = _thread.numbers
    numbers: list[int] = []
    _thread.numbers = numbers
    try:
        yield numbers
    finally:
        _thread.numbers = outer
        if outer is not None and forward_to_outer:
            outer += numbers


class _SignatureCost:
    """The cost of calls with one signature: a constant, or an affine function of the reported number."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.counted: dict[int, Charges] = {}  # by number; 0 if no number was reported
        self.registered: set[str] = set()  # operations whose cost a user registered
        self.varies = False
        self.backward_passes = 0

    @property
    def known(self) -> bool:
        """Whether no more calls need counting: two determine the affine function, and a third has confirmed it."""
        return len(self.counted) > (2 if self.varies else 0)

    def learn(self, numbers: list[int], tally: Tally) -> None:
        """Add a call that was counted in full, into `tally`."""
        number, charges = sum(numbers), tally.charges()
        self.varies |= bool(numbers)
        if (number in self.counted or len(self.counted) > 1) and _by_phase(self.at(number)) != _by_phase(charges):
            raise self._not_affine(number)
        self.counted[number] = charges
        self.registered |= tally.registered

    def at(self, number: int) -> Charges:
        """Return the charges of a call that reported `number`."""
        if number in self.counted:
            return self.counted[number]
        if len(self.counted) < 2:
            raise self._not_affine(number)
        (n, one), (m, other) = list(self.counted.items())[:2]
        low, high = _by_phase(one), _by_phase(other)
        charges = []
        for phase in low | high:
            pairs = zip(low.get(phase, (0, 0)), high.get(phase, (0, 0)), strict=True)
            values = [divmod(a * (m - number) + b * (number - n), m - n) for a, b in pairs]
            if any(remainder for _, remainder in values):
                raise self._not_affine(number)
            (forward, _), (backward, _) = values
            charges.append((phase, forward, backward))
        return tuple(charge for charge in charges if any(charge[1:]))

    def _not_affine(self, number: int) -> RuntimeError:
        return RuntimeError(
            f"count_once: {self.function} reported cost_varies_with({number}), but the costs of calls with one "
            f"signature are not a + b · (that number): counted were {self.counted}; report a number that the cost is "
            "proportional to, in each call, or let the meter count the function in full"
        )


def _by_phase(charges: Charges) -> dict[Phase, tuple[int, int]]:
    return {phase: (forward, backward) for phase, forward, backward in charges}


class CountedOnce(Generic[P, R]):
    """The function that `count_once` returns; it charges the running meter."""

    def __init__(self, fn: Callable[P, R]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self._costs: dict[Any, _SignatureCost] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, and charge the running meter, if there is one."""
        meter = running()
        if meter is None:
            return self.fn(*args, **kwargs)
        key, held = signature(args, kwargs)
        if held.hooked:
            return self.fn(*args, **kwargs)  # counted in full
        cost = self._cost(meter, key, held, args, kwargs)
        if not cost.known:
            with _reported_numbers(forward_to_outer=True) as numbers, meter.count_into(tally := Tally(None)):
                out = self.fn(*args, **kwargs)
            cost.learn(numbers, tally)
            return out
        content: Any = meter.content
        found, foreign = content.look_at_all(held.tensors)
        foreign = foreign or content.look_beside(held.tensors, held.optimizers)
        above = meter.suspend()
        try:
            with _reported_numbers(forward_to_outer=True) as numbers:
                out = self.fn(*args, **kwargs)
        finally:
            meter.resume(above)
            try:
                meter.charge(cost.at(sum(numbers)), cost.registered)
            except (RuntimeError, ValueError):
                foreign = UNCHARGED
                raise
            finally:
                content.note_all(found, foreign)
                content.beside.note(held.tensors, held.optimizers, foreign)
            passes().charged += cost.backward_passes
        for tensor in tensors_of(out):
            content.note_written(tensor, foreign)
        return out

    def charges(self, *args: P.args, **kwargs: P.kwargs) -> Charges:
        """Return what a call charges, without the call: for a faster function that does the work of many calls.

        The running meter notes the registered operations of the call.

        Raises:
            RuntimeError: no meter is running in this thread, the cost depends on the data (`cost_varies_with`), or a
                tensor among the arguments has hooks.
        """
        meter = running()
        if meter is None:
            raise RuntimeError("charges: no meter is running in this thread; call it in a `with meter:` block")
        key, held = signature(args, kwargs)
        if held.hooked:
            raise RuntimeError(
                f"charges: a tensor among the arguments of {self._name} has hooks, so its cost is known after a call "
                "only; call it instead, or remove the hooks"
            )
        cost = self._cost(meter, key, held, args, kwargs)
        if cost.varies:
            raise RuntimeError(
                f"charges: {cost.function} reported cost_varies_with, so its cost is known after a call only; call it "
                "instead"
            )
        meter.charge((), cost.registered)
        return cost.at(0)

    @property
    def _name(self) -> str:
        return getattr(self.fn, "__qualname__", repr(self.fn))

    def _cost(self, meter: Meter, key: tuple[Any, ...], held: Held, args: Any, kwargs: Any) -> _SignatureCost:
        """Return the cost of calls with the signature `key` of these arguments, counted on copies if it is new."""
        cost = self._costs.get(key)
        if cost is None:
            content: Any = meter.content
            content.look_at_all(held.tensors)  # as parameters: a copy may read their memory in another form
            cost = _SignatureCost(self._name)
            seen = len(passes().seen)
            with _reported_numbers(forward_to_outer=False) as numbers:
                tally = _count_on_copies(self.fn, args, kwargs, meter)
            cost.backward_passes = len(passes().seen) - seen
            cost.learn(numbers, tally)
            if sum(map(len, self._costs)) + len(key) > _MOST_PARTS:
                self._costs.clear()
            self._costs[key] = cost
        return cost


def _copy_tensors(modules: Iterable[nn.Module], memo: dict[int, Any]) -> None:
    """Put copies of the tensors of `modules` into `memo`, without the meter, which makes copies slower than calls.

    Only tensors whose copy runs no code of a user: the meter must see what a user's `__deepcopy__` computes.
    """
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    with disable_modes():
        for tensor in tensors:
            if type(tensor) in (Tensor, nn.Parameter) and tensor.is_leaf and not tensor.__dict__:
                copy.deepcopy(tensor, memo)


def _count_on_copies(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], meter: Meter) -> Tally:
    """Count a call of `fn` on deep copies of its arguments; the states of random generators are restored."""
    try:
        modules = [value for value in (*args, *kwargs.values()) if isinstance(value, nn.Module)]
        memo = new_registries(part for module in modules for part in nn.Module.modules(module))
        _copy_tensors(modules, memo)
        args, kwargs = copy.deepcopy((args, kwargs), memo)  # together, so that an optimizer stays tied to its module
    except (RuntimeError, TypeError) as error:
        name = getattr(fn, "__qualname__", repr(fn))
        raise RuntimeError(
            f"count_once: the arguments of {name} cannot be copied ({error}); detach computed tensors"
        ) from error
    tally = Tally(None)
    mode = CountingMode(tally, Copies(value for value in memo.values() if isinstance(value, Tensor)))
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if initialized else []
    try:
        with torch.random.fork_rng(devices), meter.count_with(mode):
            fn(*args, **kwargs)
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
    return tally
