"""Read many rows so that a damaged one hides only itself.

A row is damaged if it has a value that this program never writes, for example after a disk error, or after a change by
hand. All rows are read at once; only if that fails is each row read alone, and the damaged ones are named.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from leaderboard.errors import DamagedError

T = TypeVar("T")

# What reading a damaged row raises: wrong JSON, times, numbers, packed bytes, a missing row that another one refers to.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, zlib.error)


def each_readable(ids: Sequence[int], read: Callable[[Sequence[int]], list[T]]) -> tuple[list[T], tuple[int, ...]]:
    """Return what ``read`` returns for the rows of these ids, and the ids of damaged rows."""
    try:
        return read(ids), ()
    except UNREADABLE:
        pass
    found: list[T] = []
    damaged: list[int] = []
    for id in ids:
        try:
            found += read([id])
        except UNREADABLE:
            damaged.append(id)
    return found, tuple(damaged)


def damaged(what: str, error: BaseException) -> DamagedError:
    """Return the error of a damaged row, such as ``submission 7``."""
    return DamagedError(
        f"{what}: damaged in the database ({type(error).__name__}); a maintainer can restore it from a backup"
    )
