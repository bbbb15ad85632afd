"""Copies of modules: `copy.deepcopy`, without its work for what each module has and never needs to be copied in depth.

A module has some 20 attributes. Most of them are empty registries of hooks. `copy.deepcopy` takes more time for them
than for the weights.
"""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)

REGISTRIES = (dict, OrderedDict)
_IMMUTABLE = frozenset({bool, int, float, str, type(None)})
_RULES = frozenset(
    f"__{name}__" for name in ("deepcopy", "reduce", "reduce_ex", "getstate", "setstate", "getnewargs", "getnewargs_ex")
)


def copy_module(module: M) -> M:
    """Return an independent copy of a module, equal to that of ``copy.deepcopy``, with the same errors."""
    return _copied(module, {})  # type: ignore[no-any-return]


def is_empty_registry(value: object) -> bool:
    """Return whether an attribute of a module is an empty dictionary without content; most are registries of hooks."""
    # An OrderedDict or a subclass of dict may have attributes, which could hold weights.
    return type(value) in REGISTRIES and not value and not getattr(value, "__dict__", None)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if not isinstance(value, nn.Module) or id(value) in memo or not _has_usual_copies(type(value)):
        return copy.deepcopy(value, memo)
    new: Any = type(value).__new__(type(value))
    memo[id(value)] = new
    state: dict[str, Any] = value.__getstate__()  # type: ignore[no-untyped-call]
    new.__setstate__({name: _attribute(attribute, memo) for name, attribute in state.items()})
    return new


def _attribute(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _IMMUTABLE or (kind is tuple and all(type(item) in _IMMUTABLE for item in value)):
        return value
    if id(value) in memo or getattr(value, "__dict__", None):
        return copy.deepcopy(value, memo)
    if kind in REGISTRIES:
        new = memo[id(value)] = kind()
        for name, item in value.items():
            copied = None if item is None else _copied(item, memo)
            new[name if type(name) is str else copy.deepcopy(name, memo)] = copied
        return new
    if kind is set and not value:
        return memo.setdefault(id(value), set())
    return copy.deepcopy(value, memo)


def _has_usual_copies(kind: type[nn.Module]) -> bool:
    """Return whether a class leaves it to `object` and `nn.Module` how its modules are copied."""
    others = [base for base in kind.__mro__ if base is not nn.Module and base is not object]
    return kind not in copyreg.dispatch_table and all(_RULES.isdisjoint(vars(base)) for base in others)
