"""Modules that hold nothing but what is known of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

_USUAL = frozenset(vars(nn.Module()))


def has_only(
    module: nn.Module, *, children: Sequence[str] = (), buffers: Sequence[str] = (), attributes: Sequence[str] = ()
) -> bool:
    """Return whether a module has these children, buffers and attributes, and no parameters, hooks or anything else."""
    own = vars(module)
    if not own.keys() <= _USUAL.union(attributes) or own["_modules"].keys() != set(children):
        return False
    known = ("_modules", "_buffers")
    empty = all(not value for name, value in own.items() if isinstance(value, dict) and name not in known)
    return empty and own["_buffers"].keys() == set(buffers)
