"""Which earlier mega-batches a training repeats, written as a value that the record of a run can hold.

    none, False    none: a training is on the gathered mega-batches
    all, True      all of them
    last:k         the k newest of them

>>> replayed("last:5")
Replay(any=True, window=5)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Replay:
    """The earlier mega-batches that a training repeats.

    Attributes:
        any: whether it repeats some.
        window: how many, the newest ones; None is all.
    """

    any: bool
    window: int | None = None


def replayed(value: bool | str) -> Replay:
    """Parse which earlier mega-batches are repeated.

    Raises:
        ValueError: the value is none of those that the module lists.
    """
    plain = shortest(value)
    if isinstance(plain, bool):
        return Replay(plain)
    return Replay(True, int(plain.removeprefix("last:")))


def shortest(value: bool | str) -> bool | str:
    """Return the value as records hold it: False for none, True for all, otherwise the text.

    Raises:
        ValueError: the value is none of those that the module lists.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if value in ("none", "all"):
        return value == "all"
    name, _, number = value.partition(":") if isinstance(value, str) else ("", "", "")
    if name != "last" or not (number.isascii() and number.isdigit() and int(number) >= 1):
        raise ValueError(
            f"replay={value!r}: must be none (or False), all (or True), or last:k with k at least 1; use 'last:5'"
        )
    return f"last:{int(number)}"
