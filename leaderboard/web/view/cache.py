"""What was made a moment ago and is still good: pages, and what they are made of."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sqlalchemy import Engine, bindparam, func, select

from leaderboard.database import Event

T = TypeVar("T")

LASTING_SECONDS = 10.0
# What happens to a submission without any change to the standings.
_BESIDE_THE_BOARD = frozenset(
    ("submitted", "claimed", "lease expired", "attempt failed", "given back", "failed", "queued again")
)


class Remembered(Generic[T]):
    """The values that were used last, each good for one version of the board and for some seconds.

    The seconds are for PostgreSQL, where an event can become visible after one with a larger number. Who asks for what
    another thread is making waits for it.
    """

    def __init__(
        self, most: int, seconds: float = LASTING_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._entries: OrderedDict[Hashable, tuple[Hashable, float, T]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, version: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; made where there is none of this version, or where it is too old."""
        with self._lock:
            found = self._fresh(key, version)
            if found is not None:
                return found[2]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                found = self._fresh(key, version)
            if found is not None:
                return found[2]
            until = self._clock() + self._seconds  # from before it was read
            try:
                value = make()
            except BaseException:
                with self._lock:
                    self._making.pop(key, None)
                raise
            with self._lock:
                self._making.pop(key, None)
                self._entries[key] = version, until, value
                self._entries.move_to_end(key)
                while len(self._entries) > self._most:
                    self._entries.popitem(last=False)
            return value

    def _fresh(self, key: Hashable, version: Hashable) -> tuple[Hashable, float, T] | None:
        found = self._entries.get(key)
        if found is None or found[0] != version or found[1] <= self._clock():
            return None
        self._entries.move_to_end(key)
        return found


_LAST = select(func.max(Event.id))
_KINDS = select(Event.kind).where(Event.id > bindparam("seen"), Event.submission_id.is_not(None))


class Versions:
    """Which state of the board a page shows, by the log of events: everything that a page shows writes one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._seen = self._board = -1

    def latest(self) -> int:
        """The number of the last event: changes with everything that happens to a submission."""
        return self._look()[0]

    def board(self) -> int:
        """Changes with what the standings show: a submission that is only sent or taken in hand does not change it."""
        return self._look()[1]

    def _look(self) -> tuple[int, int]:
        with self._lock:
            seen = self._seen
        kinds = None
        # By a bare connection: this is asked with every request.
        with self._engine.connect() as connection:
            last = connection.scalar(_LAST) or 0
            if -1 < seen < last:
                kinds = set(connection.scalars(_KINDS, {"seen": seen}))
        with self._lock:
            if kinds is None and last != self._seen and self._seen == -1:
                self._board = last
            elif kinds is not None and not kinds <= _BESIDE_THE_BOARD:
                self._board = max(self._board, last)
            self._seen = max(self._seen, last)
            return last, self._board
