"""Checks of values against the types of their names, and values in the text of a command line."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np


def check_types(
    values: Mapping[str, Any], kinds: Mapping[str, Any], examples: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Check that values have the types of their names; return them, with NumPy scalars as Python scalars.

    Args:
        values: value by name.
        kinds: type by name: bool, int, float, str, or one of them ``| None``. Other names and types are not checked.
        examples: a valid value by name, for the error message.

    Raises:
        ValueError: a value does not have its type. A bool is not a number, and a number or a text is not a bool.

    >>> check_types({"epochs": "abc"}, {"epochs": int}, {"epochs": 100})
    Traceback (most recent call last):
    ...
    ValueError: epochs='abc': must be a whole number; use for example epochs=100
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
        types_of_kind, text, example = _KINDS[accepted[0]]
        is_bool = isinstance(value, bool | np.bool_)
        if isinstance(value, types_of_kind) and is_bool == (accepted[0] is bool):
            # An integer given for a float stays an integer, so that a record shows what was given.
            whole = accepted[0] is float and isinstance(value, Integral)
            plain[name] = int(value) if whole else accepted[0](value)
            continue
        if examples is not None and examples.get(name) is not None:
            example = examples[name]
        none = " or None" if len(accepted) < len(choices) else ""
        raise ValueError(f"{name}={value!r}: must be {text}{none}; use for example {name}={example!r}")
    return plain


def check_choices(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise ValueError for a value that is none of the literals of its type; other types are not checked.

    >>> check_choices({"select": "loss"}, {"select": Literal["val_loss", "val_error"]})
    Traceback (most recent call last):
    ...
    ValueError: select='loss': must be one of val_loss, val_error
    """
    for name, kind in kinds.items():
        if get_origin(kind) is Literal and values[name] not in get_args(kind):
            raise ValueError(f"{name}={values[name]!r}: must be one of {', '.join(get_args(kind))}")


# Accepted types, their description and an example, by annotated type. NumPy scalars are accepted.
_KINDS: dict[Any, tuple[Any, str, Any]] = {
    bool: (bool | np.bool_, "True or False", False),
    int: (Integral, "a whole number", 10),
    float: (Real, "a number", 0.1),
    str: (str, "text", "auto"),
}


def literal(text: str) -> Any:
    """Return the value that a text stands for: true or false in any case, a Python literal, or the text itself.

    >>> literal("true"), literal("1e-3"), literal("4,64"), literal("novels/")
    (True, 0.001, (4, 64), 'novels/')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def key_values(pairs: Sequence[str], option: str = "--set", example: str = "epochs=20") -> dict[str, Any]:
    """Parse ``key=value`` arguments of a command line into a dictionary.

    Raises:
        ValueError: an argument does not have this form, or gives a key again; the message has the option and a remedy.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise ValueError(f"{option} {pair}: must have the form key=value; use for example {option} {example}")
        if key in values:
            raise ValueError(f"{option} {pair}: {key} is given twice; give it once, as in {option} {example}")
        values[key] = literal(text)
    return values
