"""Are values of the type that their names ask for? A wrong one is told at once, not where it is first used."""

from __future__ import annotations

import types
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin

import numpy as np


def check_types(
    values: Mapping[str, Any], kinds: Mapping[str, Any], examples: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Compare values with the types of their names, and make Python's own numbers of NumPy's.

    Args:
        values: what was given.
        kinds: type by name: bool, int, float, str, or one of them ``| None``; names and types beyond these pass.
        examples: a good value by name, for the error message.

    Returns:
        The same, with bool, int, float or str for what is one of these in another guise.

    Raises:
        ValueError: a value is not of its type. A bool is not a number, and a number or a text is not a bool.

    >>> check_types({"epochs": "abc"}, {"epochs": int}, {"epochs": 100})
    Traceback (most recent call last):
    ...
    ValueError: epochs='abc': must be a whole number, for example epochs=100
    """
    plain = dict(values)
    for name, value in values.items():
        kind = kinds.get(name)
        choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
        accepted = [choice for choice in choices if choice is not types.NoneType]
        if value is None and len(accepted) < len(choices):
            continue
        if len(accepted) != 1 or accepted[0] not in _KINDS:
            continue
        types_of_kind, words, example = _KINDS[accepted[0]]
        is_bool = isinstance(value, bool | np.bool_)
        if isinstance(value, types_of_kind) and is_bool == (accepted[0] is bool):
            # A whole number that stands for any number stays one, so that it is written as it was given.
            whole = accepted[0] is float and isinstance(value, Integral)
            plain[name] = int(value) if whole else accepted[0](value)
            continue
        if examples is not None and examples.get(name) is not None:
            example = examples[name]
        none = " or None" if len(accepted) < len(choices) else ""
        raise ValueError(f"{name}={value!r}: must be {words}{none}, for example {name}={example!r}")
    return plain


# NumPy's numbers are numbers, too.
_KINDS: dict[Any, tuple[Any, str, Any]] = {
    bool: (bool | np.bool_, "True or False", False),
    int: (Integral, "a whole number", 10),
    float: (Real, "a number", 0.1),
    str: (str, "text", "auto"),
}
