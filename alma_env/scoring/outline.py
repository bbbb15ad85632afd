"""The outline of a simple module: everything that its fingerprint depends on, except the content of its tensors.

A growing ensemble has up to 500 members with one outline. To search each of them for hidden numbers would take most of
the time of a tick, so the members of one outline are searched once.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any

from torch import Tensor, nn

from alma_env.scoring.held_objects import is_library_class
from alma_env.scoring.module_tree import attributes_of

Outline = tuple[Any, ...]  # hashable
_NAMED = frozenset({"_parameters", "_buffers", "_modules"})
_PLAIN = frozenset({bool, int, str, type(None)})


def outline(module: nn.Module) -> tuple[Outline, list[Tensor]] | None:
    """Return the outline of a module, and its tensors in the order of its fingerprint; None if it is not simple.

    In a simple module, all classes are those of PyTorch or of this project. The module and each submodule hold nothing
    but tensors, submodules, truth values, numbers and texts; no tensor and no submodule has two places in the module.
    """
    found: list[Any] = []
    tensors: list[Tensor] = []
    if not _describe(module, found, tensors, set()) or len({id(tensor) for tensor in tensors}) < len(tensors):
        return None
    return tuple(found), tensors


def _describe(module: nn.Module, found: list[Any], tensors: list[Tensor], seen: set[int]) -> bool:
    """Append the outline of a module and its tensors; return False if the module is not simple."""
    kind = type(module)
    if not isinstance(module, nn.Module) or not is_library_class(kind) or kind.__reduce__ is not object.__reduce__:
        return False
    if id(module) in seen:
        return False
    seen.add(id(module))
    found.append(id(kind))  # a metaclass can make two classes equal
    for name, value in attributes_of(module).items():
        kind_of_value = type(value)
        if kind_of_value is OrderedDict:  # a registry of hooks; an OrderedDict can have attributes
            if value or value.__dict__:
                return False
        elif type(name) is not str:
            return False
        elif kind_of_value is dict:
            if value and not _describe_named(name, value, found, tensors, seen):
                return False
        elif kind_of_value in _PLAIN:
            if name != "training":  # answers are computed in eval mode
                found += (name, kind_of_value, value)
        elif kind_of_value is float:
            found += (name, struct.pack("d", value))  # 0.0 == -0.0
        elif kind_of_value is set and not value:  # the names of buffers that are not saved
            found.append(name)
        else:
            return False
    return True


def _describe_named(name: str, values: dict[Any, Any], found: list[Any], tensors: list[Tensor], seen: set[int]) -> bool:
    """Append the outline of the parameters, buffers or submodules of a module, as `_describe` does."""
    if name not in _NAMED:
        return False
    found += (name, len(values))
    for key, value in values.items():
        if type(key) is not str:
            return False
        if value is None:
            found += (key, None)
        elif name == "_modules":
            found.append(key)
            if not _describe(value, found, tensors, seen):
                return False
        elif type(value) in (Tensor, nn.Parameter):
            tensors.append(value)
            found += (key, value.shape)
        else:
            return False
    return True
