"""The signature of a call: what the cost of the call may depend on."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alma_env.metering.content.storages import parts_of


@dataclass(frozen=True)
class Held:
    """What the arguments of a call hold."""

    tensors: list[Tensor] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)

    @property
    def hooked(self) -> bool:
        """Whether a tensor has hooks, which run in the backward pass and which a copy of the tensor lacks."""
        return any(
            tensor._backward_hooks or tensor._post_accumulate_grad_hooks
            for tensor in self.tensors
            if tensor.requires_grad
        )


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Held]:
    """Return the signature of a call, and all tensors and optimizers in its arguments.

    The signature consists of the shapes, dtypes, devices and `requires_grad` of tensors, also of those in modules, and
    of the values of all other arguments. An object that compares by identity, such as the `self` of a method, enters
    by its identity and by the networks that it holds. A `forward` that was set on a module enters by its identity.
    """
    parts: list[Any] = [torch.is_grad_enabled()]
    held = Held()
    _describe(args, parts, held)
    _describe(kwargs, parts, held)
    return tuple(parts), held


def _describe(value: Any, parts: list[Any], held: Held) -> None:
    if isinstance(value, Tensor):
        parts += (value.shape, value.dtype, value.device, value.requires_grad, value.layout)
        parts += [part.shape for part in parts_of(value)] if value.layout != torch.strided else []
        held.tensors.append(value)
    elif value is None or isinstance(value, str | int | float):
        parts += (type(value), value)
    elif isinstance(value, nn.Module):
        _describe_module(value, parts, held)
    elif isinstance(value, list | tuple):
        parts += (type(value), len(value))
        for item in value:
            _describe(item, parts, held)
    elif isinstance(value, dict):
        parts += (type(value), len(value))
        for name, item in value.items():
            parts.append(name)
            _describe(item, parts, held)
    elif isinstance(value, torch.optim.Optimizer):
        parts += (type(value), len(value.state))
        held.optimizers.append(value)
        known = set(map(id, held.tensors))  # of a module among the arguments before
        for group in value.param_groups:
            parts.append(len(group["params"]))
            _describe([p for p in group["params"] if id(p) not in known], parts, held)
    elif isinstance(value, np.ndarray):
        parts += (type(value), value.shape, value.dtype)
    else:
        try:
            # A weak reference: the signature must not keep an object alive that equals only itself.
            value = weakref.ref(value) if _compares_by_identity(type(value)) else value
            hash(value)
        except TypeError:
            raise TypeError(
                f"count_once: an argument of type {type(value).__name__} cannot be compared with those of other calls; "
                "pass tensors, modules, optimizers, numbers, strings, or lists, tuples and dictionaries of them"
            ) from None
        parts += (type(value), value)
        if isinstance(value, weakref.ref):
            _describe_held(value(), parts, held)


def _describe_held(holder: Any, parts: list[Any], held: Held) -> None:
    """Describe the networks, optimizers and parameters in an object's attributes, also inside lists and dictionaries.

    The object's numbers are ignored: a counter of steps would give each call another signature.
    """
    for name, value in getattr(holder, "__dict__", {}).items():
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        for item in values:
            if isinstance(item, nn.Module | torch.optim.Optimizer) or (isinstance(item, Tensor) and item.requires_grad):
                parts.append(name)
                _describe(item, parts, held)


def _compares_by_identity(kind: type[Any]) -> bool:
    inherited: Any = object.__hash__
    return kind.__hash__ is inherited


def _describe_module(module: nn.Module, parts: list[Any], held: Held) -> None:
    # Not by named_parameters() and named_buffers(): they take ten times as long, at every step.
    parts += (type(module), module.training)
    for name, tensor in module._parameters.items():
        if tensor is not None:
            parts += (name, tensor.shape, tensor.dtype, tensor.requires_grad)
            held.tensors.append(tensor)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            parts += (name, buffer.shape, buffer.dtype)
            held.tensors.append(buffer)
    of_torch = type(module).__module__.startswith("torch.nn.")  # its private attributes follow from the others
    for name, value in vars(module).items():  # stride, padding, groups, …
        if name in _OF_EVERY_MODULE:
            if value and name in _HOOKS:
                parts += (name, *value)  # PyTorch numbers the hooks of a process
        elif of_torch and name[0] == "_":
            continue
        elif type(value) in _PLAIN:
            parts += (name, value)
        elif name == "forward":
            parts += (name, weakref.ref(value))  # it can be a method of the module, which must not be kept alive
        else:
            _describe_attribute(name, value, parts)
    for name, child in module._modules.items():
        if child is not None:
            parts.append(name)
            _describe_module(child, parts, held)


_PLAIN = frozenset({bool, int, float, str, type(None)})
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_HOOKS = frozenset(name for name in _OF_EVERY_MODULE if name.endswith("hooks"))


def _describe_attribute(name: str, value: Any, parts: list[Any]) -> None:
    """Describe a module's attribute if it can be compared; ignore it if not (functions, open files, …)."""
    if isinstance(value, list | tuple):
        parts += (name, type(value), len(value))
        for item in value:
            _describe_attribute(name, item, parts)
    elif isinstance(value, dict):
        parts += (name, type(value), len(value))
        for key, item in value.items():
            _describe_attribute("", key, parts)
            _describe_attribute("", item, parts)
    elif isinstance(value, set | frozenset):
        parts += (name, len(value), frozenset(item for item in value if not _compares_by_identity(type(item))))
    elif isinstance(value, Tensor):
        parts += (name, value.shape, value.dtype)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts += (name, type(value))
        for field in dataclasses.fields(value):
            _describe_attribute(field.name, getattr(value, field.name, None), parts)
    elif not (_compares_by_identity(type(value)) or isinstance(value, weakref.ref)):  # of a tensor: equal by element
        with contextlib.suppress(TypeError):
            hash(value)
            parts += (name, value)
