"""When a growing learner grows, written as a text that the record of a run can hold.

    never        never
    every        before every stage except the first
    every:m      before stages m, 2m, 3m, …, but never before the first
    at:t1,t2,…   one growth step per listed tick, before the first stage at or after that tick; never before the first
                 stage of the run
    stall        if the validation loss of the last stage is not lower than that of the stage before it
    stall:d      if it is not lower by more than d

>>> from agents.policies.progress import Progress
>>> steps_before = growth("every:2")  # called before stages 1, 2, 3, 4
>>> [steps_before(Progress(tick, 10, pending=1, stages=tick - 1)) for tick in (1, 2, 3, 4)]
[0, 1, 0, 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from agents.policies.progress import Progress

Growth = Callable[[Progress], int]  # returns the number of growth steps before the next stage


@cache
def growth(schedule: str) -> Growth:
    """Parse a growth schedule into a function that returns the number of growth steps before the next stage.

    Raises:
        ValueError: the schedule does not exist, or one of its numbers is out of range.
    """
    name, colon, numbers = schedule.partition(":") if isinstance(schedule, str) else ("", "", "")
    if name == "never" and not colon:
        return lambda now: 0
    if name == "every":
        period = _positive_integer(schedule, numbers) if colon else 1
        return lambda now: int(now.stages >= 1 and (now.stages + 1) % period == 0)
    if name == "at" and colon:
        return _at([_positive_integer(schedule, number) for number in numbers.split(",")])
    if name == "stall":
        return _stall(_non_negative(schedule, numbers) if colon else 0.0)
    raise ValueError(
        f"growth={schedule!r}: must be one of never, every, every:m, at:t1,t2,…, stall, stall:d; use growth='every'"
    )


def require_ticks(schedule: str, ticks: int, last: int | None = None) -> None:
    """Raise ValueError if a schedule lists a tick after the last one, or after the last tick of training."""
    name, _, numbers = schedule.partition(":")
    last = ticks if last is None else last
    late = [number for number in numbers.split(",") if int(number) > last] if name == "at" else []
    if late:
        end = f"the end of the stream of {ticks} mega-batches" if last == ticks else f"the last training at tick {last}"
        raise ValueError(f"growth={schedule!r}: tick {late[0]} is after {end}; use ticks from 1 to {last}")


def _at(ticks: list[int]) -> Growth:
    def steps(now: Progress) -> int:
        before = now.tick - now.pending  # tick of the last stage
        return sum(before < tick <= now.tick for tick in ticks) if now.stages >= 1 else 0

    return steps


def _stall(least: float) -> Growth:
    def steps(now: Progress) -> int:
        if now.validation_loss is None or now.previous_validation_loss is None:
            return 0
        # True if a loss is NaN.
        return int(not now.previous_validation_loss - now.validation_loss > least)

    return steps


def _positive_integer(schedule: str, number: str) -> int:
    # int() also accepts "1_0" and non-ASCII digits.
    if not (number.isascii() and number.isdigit() and int(number) >= 1):
        raise ValueError(
            f"growth={schedule!r}: {number!r} must be a whole number, at least 1; use for example growth='every:2' or "
            "'at:5,10'"
        )
    return int(number)


def _non_negative(schedule: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(
            f"growth={schedule!r}: {number!r} must be a finite number, at least 0; use for example growth='stall:0.01'"
        )
    return value
