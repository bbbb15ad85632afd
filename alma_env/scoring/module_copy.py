"""Copies of modules without most of the work of `copy.deepcopy`, which is spent on empty registries of hooks."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

from alma_env.metering.registries import new_registries
from alma_env.scoring.module_tree import submodules

M = TypeVar("M", bound=nn.Module)


def copy_module(module: M) -> M:
    """Return ``copy.deepcopy(module)``, in half the time."""
    return copy.deepcopy(module, new_registries(part for _, part in submodules(module)))
