"""Steps of fixed shape: counted once per signature, then charged per call, with no counter in their way."""

from __future__ import annotations

import copy
import functools
import random
import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from alma_env.counting import Charges, Counting, Tally
from alma_env.seals import Seals, tensors_of

if TYPE_CHECKING:
    from alma_env.meter import Meter

P = ParamSpec("P")
R = TypeVar("R")

_MOST_RECORDS = 4096


class CountOnce(Generic[P, R]):
    """What :func:`alma_env.meter.count_once` returns: a function that charges the running meter."""

    def __init__(self, fn: Callable[P, R], fast: Callable[P, R] | None, find: Callable[[], Meter | None]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.fast = fn if fast is None else fast
        self._find = find
        self._records: dict[Any, Charges] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step, and charge it to the running meter, if there is one."""
        meter = self._find()
        if meter is None:
            return self.fast(*args, **kwargs)
        key, tensors = signature(args, kwargs)
        charges = self._records.get(key)
        if charges is None:
            charges = count_on_copies(self.fn, args, kwargs, meter)
            if len(self._records) >= _MOST_RECORDS:
                self._records.clear()
            self._records[key] = charges
        above = meter.lift()
        try:
            out = self.fast(*args, **kwargs)
        finally:
            meter.lower(above)
            meter.charge(charges)
            meter.write(tensors)
        if out is not None:
            meter.write(tensors_of(out))
        return out


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], list[Tensor]]:
    """What the cost of a call may depend on, and all tensors in the arguments.

    That is the shapes, types, devices and `requires_grad` of tensors, in modules too, and the values of all else.
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
