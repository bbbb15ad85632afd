"""The parts of a module as PyTorch registers them, whatever methods its class overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from alma_env.errors import PredictorError


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module, without the methods of its class that attribute access would call."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


def submodules(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the module and all modules in it, once each, with their names.

    Raises:
        PredictorError: one of them is a TorchScript module, whose parts only TorchScript knows.
    """
    seen: set[int] = set()
    waiting = [(name, module)]
    while waiting:
        name, one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, torch.jit.ScriptModule):
                raise PredictorError(
                    f"{type(one).__name__} {name!r} is a TorchScript module: its content cannot be compared and "
                    "metered; deploy the torch.nn.Module that it was made from"
                )
            yield name, one
            prefix = f"{name}." if name else ""
            children = reversed(attributes_of(one)["_modules"].items())
            waiting += [(prefix + key, child) for key, child in children if child is not None]


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of a module and its submodules, tied ones once, with their names."""
    yield from _named(module, "_parameters")


def named_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers of a module and its submodules, tied ones once, with their names."""
    yield from _named(module, "_buffers")


def _named(module: nn.Module, kind: str) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, one in submodules(module):
        for key, tensor in attributes_of(one)[kind].items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield (f"{name}.{key}" if name else key), tensor


def evaluate_only(module: nn.Module) -> None:
    """Put a module into eval mode, without gradients; the methods of its class are not called."""
    for _, one in submodules(module):
        attributes_of(one)["training"] = False
    for _, parameter in named_parameters(module):
        if not is_lazy(parameter):
            parameter.requires_grad_(False)
