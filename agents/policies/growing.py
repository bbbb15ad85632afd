"""When a growing learner grows, as plain text that the record of a run can hold.

    never        not at all
    every        before every stage but the first
    every:m      before the stages m, 2m, 3m, … but not before the first
    at:t1,t2,…   one step for each of these ticks, at the first training at or after it; the first training never grows
    stall        when the validation loss of the last stage is not lower than that of the stage before
    stall:d      … not lower by more than d

>>> from agents.policies import Progress
>>> due = growth("every:2")  # asked before the stages 1, 2, 3, 4
>>> [due(Progress(tick, 10, pending=1, stages=tick - 1)) for tick in (1, 2, 3, 4)]
[0, 1, 0, 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.policies import Progress

Growth = Callable[["Progress"], int]  # growth steps before the stage that is about to be trained


@cache
def growth(schedule: str) -> Growth:
    """Read a schedule; the result says how many growth steps come before the stage that is about to be trained.

    Raises:
        ValueError: there is no such schedule, or its numbers break their rule.
    """
    name, colon, numbers = schedule.partition(":") if isinstance(schedule, str) else ("", "", "")
    if name == "never" and not colon:
        return lambda now: 0
    if name == "every":
        return _every(_whole(schedule, numbers) if colon else 1)
    if name == "at" and colon:
        return _at([_whole(schedule, number) for number in numbers.split(",")])
    if name == "stall":
        return _stall(_at_least_0(schedule, numbers) if colon else 0.0)
    raise ValueError(
        f"growth={schedule!r}: no such schedule; "
        "choose one of never, every, every:m, at:t1,t2,…, stall, stall:d, for example growth='every:2'"
    )


def require_ticks(schedule: str, ticks: int) -> None:
    """Raises ValueError where a schedule names a tick after the last one, which would never come."""
    name, _, numbers = schedule.partition(":")
    late = [number for number in numbers.split(",") if int(number) > ticks] if name == "at" else []
    if late:
        raise ValueError(
            f"growth={schedule!r}: tick {late[0]} never comes, since the stream has {ticks} mega-batches; "
            f"name ticks from 1 to {ticks}"
        )


def _every(period: int) -> Growth:
    return lambda now: int(now.stages >= 1 and (now.stages + 1) % period == 0)


def _at(ticks: list[int]) -> Growth:
    def due(now: Progress) -> int:
        before = now.tick - now.pending  # tick of the last training
        return sum(before < tick <= now.tick for tick in ticks) if now.stages >= 1 else 0

    return due


def _stall(least: float) -> Growth:
    def due(now: Progress) -> int:
        if now.validation_loss is None or now.previous_validation_loss is None:
            return 0
        # A loss that is not a number is no progress.
        return int(not now.previous_validation_loss - now.validation_loss > least)

    return due


def _whole(schedule: str, number: str) -> int:
    # int() would take "1_0" and Arabic digits, too.
    if not (number.isascii() and number.isdigit() and int(number) >= 1):
        raise ValueError(
            f"growth={schedule!r}: {number!r} must be a whole number from 1, for example growth='every:2' or 'at:5,10'"
        )
    return int(number)


def _at_least_0(schedule: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"growth={schedule!r}: {number!r} must be a number from 0, for example growth='stall:0.01'")
    return value
