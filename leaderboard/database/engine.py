"""Open the board's database: SQLite in a file, or PostgreSQL by URL; and transactions that read or write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from leaderboard.errors import DatabaseError

BUSY_SECONDS = 30.0  # how long a writer of SQLite waits for another to finish
_EXAMPLES = "write sqlite:///board.db, or postgresql://user@host/board"


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """An engine for a URL. Nothing is created; see `leaderboard.migrations.upgrade`.

    Args:
        url: of SQLite in a file or of PostgreSQL.
        busy_seconds: how long a writer waits for another one to finish, before it is told that the database is busy.

    Raises:
        DatabaseError: it is no URL of SQLite in a file or of PostgreSQL.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        # A server that was restarted is noticed before a transaction, not in it.
        return create_engine(parsed, pool_pre_ping=True)
    engine = create_engine(parsed)

    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        _prepare_sqlite(connection, busy_seconds)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise DatabaseError(f"database {url!r}: not a URL; {_EXAMPLES}") from error
    shown = parsed.render_as_string(hide_password=True)
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise DatabaseError(f"database {shown!r}: the board knows SQLite and PostgreSQL; {_EXAMPLES}")
    if parsed.database in (None, "", ":memory:"):
        raise DatabaseError(f"database {shown!r}: in memory, where no worker could see it; name a file, {_EXAMPLES}")
    return parsed


def _prepare_sqlite(connection: sqlite3.Connection, busy_seconds: float) -> None:
    # The driver would begin transactions late and in its own way; `_begin_sqlite` does it as asked.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {round(busy_seconds * 1000)}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that begins by reading and then writes cannot wait for another writer: it would write on top of
    # what it has not read. So who will write says so at the beginning, and waits there.
    immediate = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A transaction that changes nothing and sees one state of the database."""
    with Session(engine) as session:
        yield session


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A transaction that writes: all of it is kept, or nothing where anything raises."""
    with Session(engine.execution_options(writes=True)) as session, session.begin():
        yield session


def now(session: Session) -> datetime:
    """The database's clock, so that machines whose clocks differ agree on when a lease ends; SQLite is one machine."""
    if session.get_bind().dialect.name == "postgresql":
        moment: datetime = session.scalars(select(func.clock_timestamp())).one()
        return moment.astimezone(UTC)
    return datetime.now(UTC)
