"""Connect to the board's database, SQLite in a file or PostgreSQL, and open transactions that read or write."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from leaderboard.errors import DatabaseError

BUSY_SECONDS = 30.0  # how long a writer of SQLite waits for another writer
_EXAMPLES = "write sqlite:///board.db, or postgresql://user@host/board"


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine for a URL. No tables are created; see `leaderboard.database.migrations.upgrade`.

    A writer of SQLite waits ``busy_seconds`` for another writer before it raises OperationalError.

    Raises:
        DatabaseError: the URL is invalid, or is neither of SQLite in a file nor of PostgreSQL.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        # Detects a restarted server before a transaction begins.
        return create_engine(parsed, pool_pre_ping=True)
    engine = create_engine(parsed)

    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        # Turns off the driver's own transactions, which begin too late; `_begin_sqlite` begins them.
        connection.isolation_level = None
        # A text with broken bytes is shown with marks in it; otherwise it would make every query that reads it fail.
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {round(busy_seconds * 1000)}")
        use_write_ahead_log(cursor, busy_seconds)
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def use_write_ahead_log(cursor: sqlite3.Cursor, busy_seconds: float) -> None:
    """Switch a file to the write-ahead log, unless it has one.

    SQLite does not wait if two connections switch at the same time: each would wait for the lock of the other.
    """
    end = time.monotonic() + busy_seconds
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def require_existing(url: str) -> None:
    """Raise DatabaseError if a URL names a file of SQLite that does not exist, which `connect` would create."""
    parsed = _parse(url)
    file = parsed.database or ""
    if parsed.get_backend_name() == "sqlite" and not file.startswith("file:") and not Path(file).is_file():
        raise DatabaseError(
            f"database {url!r}: there is no file {file}; correct the name, or begin a new board with "
            "`alma-leaderboard account add` or `alma-leaderboard serve`"
        )


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        shown = f"…@{url.rpartition('@')[2]}" if "@" in url else url  # without a password
        raise DatabaseError(f"database {shown!r}: not a URL; {_EXAMPLES}") from error
    shown = parsed.render_as_string(hide_password=True)
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise DatabaseError(f"database {shown!r}: must be SQLite or PostgreSQL; {_EXAMPLES}")
    if parsed.database in (None, "", ":memory:"):
        raise DatabaseError(f"database {shown!r}: must be a file that workers can open; {_EXAMPLES}")
    return parsed


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that has read cannot wait for another writer before it writes, because its reads would be outdated.
    # A transaction that will write therefore takes the lock at its beginning, and waits there.
    immediate = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Open a transaction that reads one state of the database."""
    with Session(engine) as session:
        yield session


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """Open a transaction that writes; an exception rolls all of it back."""
    with Session(engine.execution_options(writes=True)) as session, session.begin():
        yield session


def lock(session: Session, name: str) -> None:
    """Let one transaction at a time pass, of those that give this name, until it ends: a count stays true."""
    if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer at a time
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))


def now(session: Session) -> datetime:
    """Return the time of the database's clock, so that all machines agree on the end of a lease."""
    if session.get_bind().dialect.name == "postgresql":
        moment: datetime = session.scalars(select(func.clock_timestamp())).one()
        return moment.astimezone(UTC)
    return datetime.now(UTC)  # all processes of an SQLite database are on one machine
