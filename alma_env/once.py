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
from torch.utils._python_dispatch import _disable_current_modes

from alma_env.counting import Charges, Counting, Tally
from alma_env.seals import Seals, storage_id, tensors_of

if TYPE_CHECKING:
    from alma_env.meter import Meter

P = ParamSpec("P")
R = TypeVar("R")

_MOST_RECORDS = 4096


class CountOnce(Generic[P, R]):
    """What :func:`alma_env.meter.count_once` returns: a function that charges the running meter."""

    def __init__(
        self, fn: Callable[P, R], fast: Callable[P, R] | None, find: Callable[[], Meter | None]
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.fast = fn if fast is None else fast
        self._find = find
        self._records: dict[Any, Charges] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
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
        for group in value.param_groups:
            _describe(group["params"], parts, tensors)
    elif isinstance(value, np.ndarray):
        parts += (type(value), value.shape, value.dtype)
    elif type(value).__hash__ is object.__hash__:  # equal only to itself; the record must not keep it alive
        parts.append(weakref.ref(value))
    else:
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"count_once: an argument of type {type(value).__name__} cannot be compared with those of other calls: "
                "give tensors, modules, optimizers, numbers, strings, or lists, tuples and dictionaries of them"
            ) from None
        parts += (type(value), value)


def _describe_module(module: nn.Module, parts: list[Any], tensors: list[Tensor]) -> None:
    # By hand: named_parameters() and named_buffers() take ten times as long, at every step.
    parts += (type(module), module.training)
    for stored in (module._parameters, module._buffers):
        for name, tensor in stored.items():
            parts.append(name)
            if tensor is not None:
                parts += (tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad)
                tensors.append(tensor)
    for name, child in module._modules.items():
        if child is not None:
            parts.append(name)
            _describe_module(child, parts, tensors)


class _OwnTensors(Seals):
    """Refuses writes to tensors that are neither copies of the arguments nor made in the counted run."""

    def __init__(self, own: list[Tensor], name: str) -> None:
        super().__init__()
        self._name = name


def count_on_copies(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], meter: Meter
) -> Charges:
    """Run `fn` on deep copies of its arguments under full counting; the random generators stay as they are."""
    try:
        args, kwargs = copy.deepcopy(
            (args, kwargs)
        )  # together, so that an optimizer stays tied to its module
    except RuntimeError as error:
        name = getattr(fn, "__qualname__", repr(fn))
        raise RuntimeError(
            f"count_once: the arguments of {name} cannot be copied ({error}): detach computed tensors"
        ) from error
    tally = Tally(None)
    python_state, numpy_state = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with (
            torch.random.fork_rng(devices),
            _disable_current_modes(),
            meter.counting(tally),
            Counting(tally, None),
        ):
            fn(*args, **kwargs)
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
    return tally.charges()
