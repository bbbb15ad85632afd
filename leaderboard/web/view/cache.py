"""A cache of pages and of their contents, and the version of the board that its entries belong to."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sqlalchemy import Engine, bindparam, func, select

from leaderboard.database.tables import Event

T = TypeVar("T")

LIFETIME_SECONDS = 10.0
# Kinds of events that do not change the standings.
_NOT_IN_STANDINGS = frozenset(
    (
        *("submitted", "claimed", "lease expired", "interrupted", "attempt failed", "given back"),
        *("failed", "held", "damaged", "queued again"),
    )
)


class VersionedCache(Generic[T]):
    """A cache of the most recently used values. An entry is valid for one version of the board and for some seconds.

    The lifetime is for PostgreSQL, where an event can become visible after an event with a larger number. Several
    threads that need the same value compute it once: the others wait.
    """

    def __init__(
        self, most: int, seconds: float = LIFETIME_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._entries: OrderedDict[Hashable, tuple[Hashable, float, T]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, version: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key. It is computed if there is no entry of this version or the entry is too old."""
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
            until = self._clock() + self._seconds  # counted from before the computation
            try:
                value = make()
                with self._lock:
                    self._entries[key] = version, until, value
                    self._entries.move_to_end(key)
                    while len(self._entries) > self._most:
                        self._entries.popitem(last=False)
                return value
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _fresh(self, key: Hashable, version: Hashable) -> tuple[Hashable, float, T] | None:
        found = self._entries.get(key)
        if found is None or found[0] != version or found[1] <= self._clock():
            return None
        self._entries.move_to_end(key)
        return found


_LAST = select(func.max(Event.id))
_KINDS = select(Event.kind).where(Event.id > bindparam("seen"), Event.submission_id.is_not(None))


class Versions:
    """Versions of the board, from the log of events: every change that a page shows writes an event."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._seen = self._board = -1

    def latest(self) -> int:
        """Return the number of the last event. It changes with every event of a submission."""
        return self._query()[0]

    def board(self) -> int:
        """Return the version of the standings. Sending or starting a submission does not change it."""
        return self._query()[1]

    def _query(self) -> tuple[int, int]:
        with self._lock:
            seen = self._seen
        kinds = None
        # A bare connection is faster than a session, and every request needs this query.
        with self._engine.connect() as connection:
            last = connection.scalar(_LAST) or 0
            if -1 < seen < last:
                kinds = set(connection.scalars(_KINDS, {"seen": seen}))
        with self._lock:
            if kinds is None and last > self._seen:
                self._board = last  # nothing was read of the events since `_seen`
            elif kinds is not None and not kinds <= _NOT_IN_STANDINGS:
                self._board = max(self._board, last)
            self._seen = max(self._seen, last)
            return last, self._board
