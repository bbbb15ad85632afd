"""Results as JSON on standard output, for other programs; messages for the reader go to standard error."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console


def write(data: Any) -> None:
    """Print data as JSON, with None for NaN and for infinite numbers, which JSON does not have."""
    print(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def messages(console: Console, *, as_json: bool) -> Console:
    """Return the console for messages: standard error if standard output holds JSON."""
    return Console(stderr=True) if as_json else console


def plain(data: Any) -> Any:
    """Return dataclasses, mappings, sequences and numbers as plain JSON values.

    >>> plain({"seeds": (0, 1), "half": float("nan")})
    {'seeds': [0, 1], 'half': None}
    """
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: plain(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        return {str(name): plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple | set | frozenset):
        return [plain(value) for value in data]
    if isinstance(data, bool | str) or data is None:
        return data
    if hasattr(data, "item"):  # a number of NumPy
        return plain(data.item())
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    return data if isinstance(data, int) else str(data)
