"""Steps of fixed shape: counted once per signature, then charged per call, with no counter in their way.

Where part of a step's cost depends on the data, as with the tokens that a Switch layer drops, the step says by way of
which number (`cost_varies_with`): a few calls, counted in full, then tell the cost of all others.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from alma_env.counting import Charges, Counting, Phase, Tally
from alma_env.seals import Seals, tensors_of

if TYPE_CHECKING:
    from alma_env.meter import Meter

P = ParamSpec("P")
R = TypeVar("R")

_MOST_RECORDS = 4096


class _Thread(threading.local):
    said: list[int] | None = None  # what the innermost step that runs in this thread has said


_thread = _Thread()


def cost_varies_with(number: int) -> None:
    """Say, in a step of `alma_env.meter.count_once`, that its cost depends on the data by way of `number`.

    For example the rows of a matrix product, where the data decide which they are. Of all calls with one signature, the
    FLOPs must be a + b · (sum of the numbers said in the call). Outside of such steps this does nothing.
    """
    if _thread.said is not None:
        _thread.said.append(number)


@contextmanager
def _listening(*, for_outer: bool) -> Iterator[list[int]]:
    """The numbers that are said in this block; `for_outer` has an outer step hear them, too."""
    outer = _thread.said
    said: list[int] = []
    _thread.said = said
    try:
        yield said
    finally:
        _thread.said = outer
        if outer is not None and for_outer:
            outer += said


class _Cost:
    """What calls with one signature are charged: a constant, or an affine function of the number that they say."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.counted: dict[int, Charges] = {}  # by number; 0 where none was said
        self.varies = False

    @property
    def known(self) -> bool:
        """Whether no more calls need counting: two give the function, and a third has confirmed it."""
        return len(self.counted) > (2 if self.varies else 0)

    def learn(self, said: list[int], charges: Charges) -> None:
        """Take in a call that was counted in full."""
        number = sum(said)
        self.varies = self.varies or bool(said)
        if (number in self.counted or len(self.counted) > 1) and _by_phase(self.at(number)) != _by_phase(charges):
            raise self._broken(number)
        self.counted[number] = charges

    def at(self, number: int) -> Charges:
        """The charges of a call that says this number."""
        if number in self.counted:
            return self.counted[number]
        if len(self.counted) < 2:
            raise self._broken(number)
        (n, one), (m, other) = list(self.counted.items())[:2]
        low, high = _by_phase(one), _by_phase(other)
        charges = []
        for phase in low | high:
            pairs = zip(low.get(phase, (0, 0)), high.get(phase, (0, 0)), strict=True)
            values = [divmod(a * (m - number) + b * (number - n), m - n) for a, b in pairs]
            if any(remainder for _, remainder in values):
                raise self._broken(number)
            (forward, _), (backward, _) = values
            charges.append((phase, forward, backward))
        return tuple(charge for charge in charges if any(charge[1:]))

    def _broken(self, number: int) -> RuntimeError:
        return RuntimeError(
            f"count_once: {self.step} said that its cost varies with {number}, but calls with one signature do not "
            f"cost a + b · (that number): counted were {self.counted}; say a number that the cost is proportional to, "
            "in each call, or let the meter count the step in full"
        )


def _by_phase(charges: Charges) -> dict[Phase, tuple[int, int]]:
    return {phase: (forward, backward) for phase, forward, backward in charges}


class CountOnce(Generic[P, R]):
    """What `alma_env.meter.count_once` returns: a function that charges the running meter."""

    def __init__(self, fn: Callable[P, R], fast: Callable[P, R] | None, find: Callable[[], Meter | None]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.fast = fn if fast is None else fast
        self._find = find
        self._records: dict[Any, _Cost] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step, and charge it to the running meter, if there is one."""
        meter = self._find()
        if meter is None:
            return self.fast(*args, **kwargs)
        key, tensors = signature(args, kwargs)
        cost = self._records.get(key)
        if cost is None:
            cost = _Cost(getattr(self.fn, "__qualname__", repr(self.fn)))
            with _listening(for_outer=False) as said:
                charges = count_on_copies(self.fn, args, kwargs, meter)
            cost.learn(said, charges)
            if len(self._records) >= _MOST_RECORDS:
                self._records.clear()
            self._records[key] = cost
        if not cost.known:
            with _listening(for_outer=True) as said, meter.tallying(tally := Tally(None)):
                out = self.fn(*args, **kwargs)
            cost.learn(said, tally.charges())
            return out
        above = meter.lift()
        try:
            with _listening(for_outer=True) as said:
                out = self.fast(*args, **kwargs)
        finally:
            meter.lower(above)
            meter.write(tensors)
            meter.charge(cost.at(sum(said)))
        if out is not None:
            meter.write(tensors_of(out))
        return out


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], list[Tensor]]:
    """What the cost of a call may depend on, and all tensors in the arguments.

    That is the shapes, types, devices and `requires_grad` of tensors, in modules too, and the values of all else. Of an
    object with methods, which a step may be, it is which one it is, and what networks it holds.
    """
    parts: list[Any] = [torch.is_grad_enabled()]
    tensors: list[Tensor] = []
    for value in args:
        if isinstance(value, Tensor):
            parts += (value.shape, value.dtype, value.device, value.requires_grad)
            tensors.append(value)
        else:
            _describe(value, parts, tensors)
    for name, value in kwargs.items():
        parts.append(name)
        _describe(value, parts, tensors)
    return tuple(parts), tensors


def _describe(value: Any, parts: list[Any], tensors: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        parts += (value.shape, value.dtype, value.device, value.requires_grad)
        tensors.append(value)
    elif value is None or isinstance(value, str | int | float):
        parts += (type(value), value)
    elif isinstance(value, nn.Module):
        _describe_module(value, parts, tensors)
    elif isinstance(value, list | tuple):
        parts += (type(value), len(value))
        for item in value:
            _describe(item, parts, tensors)
    elif isinstance(value, dict):
        parts += (type(value), len(value))
        for name, item in value.items():
            parts.append(name)
            _describe(item, parts, tensors)
    elif isinstance(value, torch.optim.Optimizer):
        parts += (type(value), len(value.state))
        known = set(map(id, tensors))  # the parameters of a module among the arguments before
        for group in value.param_groups:
            parts.append(len(group["params"]))
            _describe([p for p in group["params"] if id(p) not in known], parts, tensors)
    elif isinstance(value, np.ndarray):
        parts += (type(value), value.shape, value.dtype)
    else:
        try:
            # What equals only itself is referred to weakly: the record must not keep it alive.
            value = weakref.ref(value) if _compares_by_identity(type(value)) else value
            hash(value)
        except TypeError:
            raise TypeError(
                f"count_once: an argument of type {type(value).__name__} cannot be compared with those of other calls: "
                "give tensors, modules, optimizers, numbers, strings, or lists, tuples and dictionaries of them"
            ) from None
        parts += (type(value), value)
        if isinstance(value, weakref.ref):
            _describe_held(value(), parts, tensors)


def _describe_held(holder: Any, parts: list[Any], tensors: list[Tensor]) -> None:
    """The networks, optimizers and parameters that an object has as attributes, or in lists and dictionaries of them.

    Its numbers are not looked at: a count of steps would make each call another one.
    """
    for name, value in getattr(holder, "__dict__", {}).items():
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        for item in values:
            if isinstance(item, nn.Module | torch.optim.Optimizer) or (isinstance(item, Tensor) and item.requires_grad):
                parts.append(name)
                _describe(item, parts, tensors)


def _compares_by_identity(kind: type[Any]) -> bool:
    inherited: Any = object.__hash__
    return kind.__hash__ is inherited


def _describe_module(module: nn.Module, parts: list[Any], tensors: list[Tensor]) -> None:
    # By hand: named_parameters() and named_buffers() take ten times as long, at every step.
    parts += (type(module), module.training)
    if module._parameters:
        for name, tensor in module._parameters.items():
            if tensor is not None:
                parts += (name, tensor.shape, tensor.dtype, tensor.requires_grad)
                tensors.append(tensor)
    if module._buffers:
        for name, buffer in module._buffers.items():
            if buffer is not None:
                parts += (name, buffer.shape)
                tensors.append(buffer)
    for name, value in vars(module).items():  # stride, padding, groups, …
        if name[0] != "_" and name != "training":
            if type(value) in _PLAIN:
                parts += (name, value)
            else:
                _describe_attribute(name, value, parts)
    for name, child in module._modules.items():
        if child is not None:
            parts.append(name)
            _describe_module(child, parts, tensors)


_PLAIN = frozenset({bool, int, float, str, type(None)})


def _describe_attribute(name: str, value: Any, parts: list[Any]) -> None:
    """Values that can be compared; what cannot (functions, open files, …) is taken to be the module's own affair."""
    if isinstance(value, list | tuple):
        parts += (name, type(value), len(value))
        for item in value:
            _describe_attribute(name, item, parts)
        return
    if isinstance(value, Tensor):
        parts += (name, value.shape, value.dtype)
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts += (name, type(value))
        for field in dataclasses.fields(value):
            _describe_attribute(field.name, getattr(value, field.name, None), parts)
        return
    try:
        hash(value)
    except TypeError:
        return
    if not _compares_by_identity(type(value)):
        parts += (name, value)


def count_on_copies(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], meter: Meter) -> Charges:
    """Run `fn` on deep copies of its arguments under full counting; the random generators stay as they are."""
    try:
        memo: dict[int, Any] = {}
        args, kwargs = copy.deepcopy((args, kwargs), memo)  # together, so that an optimizer stays tied to its module
    except (RuntimeError, TypeError) as error:
        name = getattr(fn, "__qualname__", repr(fn))
        raise RuntimeError(
            f"count_once: the arguments of {name} cannot be copied ({error}): detach computed tensors"
        ) from error
    copies = Seals()
    for value in memo.values():
        if isinstance(value, Tensor):
            copies.write(value)
    tally = Tally(None)
    mode = Counting(tally, copies, only_known=True)
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if initialized else []
    try:
        with torch.random.fork_rng(devices), meter.counting(mode):
            fn(*args, **kwargs)
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
    return tally.charges()
