"""The empty registries of modules, such as those of hooks.

A module has about 15 of them, and half of the time of a deep copy would be spent on them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from torch import nn


def is_empty_registry(value: object) -> bool:
    """Return whether a value is an empty dictionary without attributes; in a module, most are registries of hooks."""
    # An OrderedDict or a subclass of dict may have attributes, which could hold weights.
    return type(value) in (dict, OrderedDict) and not value and not getattr(value, "__dict__", None)


def new_registries(modules: Iterable[nn.Module]) -> dict[int, Any]:
    """Return a memo for `copy.deepcopy` that has a new registry for each empty one of these modules."""
    # Attribute access would call methods of the modules' classes.
    attributes = [value for one in modules for value in object.__getattribute__(one, "__dict__").values()]
    registries = [value for value in attributes if is_empty_registry(value)]
    memo: dict[int, Any] = {id(value): type(value)() for value in registries}
    memo[id(memo)] = registries  # keeps them, and so their ids, to the end of the copy, as copy.deepcopy does
    return memo
