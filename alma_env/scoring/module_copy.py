"""Copies of modules without most of the work of `copy.deepcopy`, which is spent on empty registries of hooks."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any, TypeVar

from torch import nn

from alma_env.scoring.module_tree import attributes_of, submodules

M = TypeVar("M", bound=nn.Module)


def is_empty_registry(value: object) -> bool:
    """Return whether an attribute of a module is an empty dictionary without content; most are registries of hooks."""
    # An OrderedDict or a subclass of dict may have attributes, which could hold weights.
    return type(value) in (dict, OrderedDict) and not value and not getattr(value, "__dict__", None)


def copy_module(module: M) -> M:
    """Return ``copy.deepcopy(module)``, in half the time: each module has about 15 empty registries."""
    attributes = [value for _, part in submodules(module) for value in attributes_of(part).values()]
    registries = [value for value in attributes if is_empty_registry(value)]
    memo: dict[int, Any] = {id(value): type(value)() for value in registries}
    memo[id(memo)] = registries  # keeps them, and so their ids, to the end of the copy, as copy.deepcopy does
    return copy.deepcopy(module, memo)
