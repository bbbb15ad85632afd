"""Checks of arguments that are integers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from alma_env.errors import ArgumentTypeError


def require_integer(value: Any, name: str) -> int:
    """Return `value` as an int; raise a TypeError that names the argument if `value` is not an integer."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        example = int(value) if isinstance(value, float) and value.is_integer() else 1
        raise ArgumentTypeError(f"{name}={value!r}: must be an integer, such as {name}={example}") from None


def require_seed(seed: int) -> int:
    """Return the seed of a stream as an int; raise a TypeError if it is no integer, a ValueError if it is negative."""
    number = require_integer(seed, "seed")
    if number < 0:
        raise ValueError(f"seed={number}: the seed of a stream must be a non-negative integer; use seed=0")
    return number
