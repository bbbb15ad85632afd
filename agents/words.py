"""Values that are written as words of a command line: ``epochs=20 replay=true train=novels/``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any


def literal(text: str) -> Any:
    """True or false in any case, another Python literal, or else the text itself.

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
    """``key=value`` words as a dictionary; ``option`` is what they were given to.

    Raises:
        ValueError: a word is not of this form.
    """
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise ValueError(f"{option} {pair}: write key=value, for example {option} {example}")
        values[key] = literal(text)
    return values
