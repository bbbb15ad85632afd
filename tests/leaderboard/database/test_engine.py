"""Connections and transactions behave equally on both databases."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, StatementError

from leaderboard.database.engine import connect, now, reading, use_write_ahead_log, writing
from leaderboard.database.migrations import open_database
from leaderboard.database.tables import Account, Event
from leaderboard.errors import DatabaseError


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("board.db", "not a URL; write sqlite:///board.db"),
        ("root:secret@host", "database '…@host': not a URL"),
        ("postgresql://root:secret@host:port/db", "database '…@host:port/db': not a URL"),
        ("mysql://root:secret@host/db", "must be SQLite or PostgreSQL"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url, message):
    with pytest.raises(DatabaseError, match=message) as caught:
        connect(url)
    assert "secret" not in str(caught.value)


class Busy:
    """A cursor of a file that other connections switch to the write-ahead log, for some of its calls."""

    def __init__(self, calls: int, code: int = sqlite3.SQLITE_BUSY) -> None:
        self.calls, self.code = calls, code

    def execute(self, _: str) -> None:
        self.calls -= 1
        if self.calls >= 0:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error


def test_a_connection_waits_while_another_one_switches_the_file_to_the_log():
    cursor = Busy(3)
    use_write_ahead_log(cursor, 10.0)
    assert cursor.calls == -1
    for other, seconds in ((Busy(10**6), 0.05), (Busy(1, sqlite3.SQLITE_READONLY), 10.0)):
        with pytest.raises(sqlite3.OperationalError):
            use_write_ahead_log(other, seconds)


def test_a_url_of_postgresql_selects_the_installed_driver():
    assert connect("postgres://a@b/c").url.drivername == "postgresql+psycopg"
    assert connect("postgresql://a@b/c").url.drivername == "postgresql+psycopg"
    assert isinstance(connect("postgresql+psycopg://a@b/c"), sqlalchemy.Engine)


def test_sqlite_waits_for_writers_and_checks_foreign_keys(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "busy_timeout", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "busy_timeout": 30_000, "foreign_keys": 1}
    engine.dispose()


def test_times_are_stored_with_their_instant_and_read_in_utc(engine):
    there = datetime(2026, 3, 4, 5, 6, 7, 890123, timezone(timedelta(hours=5, minutes=30)))
    with writing(engine) as session:
        session.add(Account(name="Ada", created_at=there))
    with reading(engine) as session:
        back = session.scalars(select(Account.created_at)).one()
        assert back == there
        assert back.tzinfo == UTC
        assert abs(now(session) - datetime.now(UTC)) < timedelta(minutes=1)
        assert now(session).tzinfo == UTC
    with reading(engine) as session:
        session.add(Account(name="Bob", created_at=datetime(2026, 1, 1)))
        with pytest.raises(StatementError, match="must have a time zone; use"):
            session.flush()


def test_a_row_with_an_unknown_foreign_key_is_refused(engine):
    with pytest.raises(IntegrityError), writing(engine) as session:
        session.add(Event(at=datetime.now(UTC), kind="claimed", submission_id=7))


def test_a_transaction_that_raises_is_rolled_back(engine):

    def spoil() -> None:
        with writing(engine) as session:
            session.add(Account(name="Ada", created_at=now(session)))
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoil()
    with reading(engine) as session:
        assert session.scalars(select(Account)).all() == []
