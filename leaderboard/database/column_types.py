"""Column types with equal behavior on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A date and time with a time zone. SQLite stores no time zones, so it stores UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the value to store.

        Raises:
            ValueError: the value has no time zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value}: must have a time zone; use datetime.now(UTC)")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the value that was stored."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class WholeNumber(TypeDecorator[int]):
    """An integer of any size, stored as decimal digits; the FLOPs of a long run can exceed 63 bits."""

    impl = String(40)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> str | None:
        """Return the value to store."""
        return None if value is None else str(int(value))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> int | None:
        """Return the value that was stored."""
        return None if value is None else int(value)
