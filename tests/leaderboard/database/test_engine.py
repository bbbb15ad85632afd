"""The tables are the same on both databases, and hold what was put into them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, select
from sqlalchemy.exc import IntegrityError, StatementError

from leaderboard import migrations
from leaderboard.accounts import find_or_make_account, register
from leaderboard.database import Account, Base, Event, Submission
from leaderboard.engine import connect, now, reading, writing
from leaderboard.errors import DatabaseError, NotFoundError, SubmissionError
from leaderboard.migrations import open_database, upgrade
from leaderboard.package import Package
from leaderboard.submissions import package_of, submit
from leaderboard.tokens import authenticate, authenticate_session, open_session

from .conftest import package_of as good_package


def test_models_and_migrations_agree(engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": Base.metadata}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_go_back_to_nothing_and_forth_again(database_url):
    from alembic import command

    upgrade(database_url)
    engine = connect(database_url)
    with engine.execution_options(writes=True).begin() as connection:
        config = migrations.configuration()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    engine.dispose()
    upgrade(database_url)
    upgrade(database_url)  # nothing to do
    open_database(database_url).dispose()


def test_tokens_live_through_the_migration_that_adds_sessions_and_no_session_becomes_a_token(database_url):
    from alembic import command

    upgrade(database_url)
    engine = connect(database_url)
    _, token = register(engine, "Ada")
    _, session_secret = open_session(engine, token.secret)
    config = migrations.configuration()
    for move, to in ((command.downgrade, "0001"), (command.upgrade, "head")):
        with engine.execution_options(writes=True).begin() as connection:
            config.attributes["connection"] = connection
            move(config, to)
    assert authenticate(engine, token.secret).name == "Ada"
    assert authenticate(engine, session_secret) is None
    assert authenticate_session(engine, session_secret) is None
    engine.dispose()


def test_several_processes_may_bring_one_database_up_to_date_at_once(database_url):
    errors = []

    def open_it() -> None:
        try:
            open_database(database_url).dispose()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_tables_of_another_version_or_of_something_else_are_left_alone(database_url):
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE theirs (id INTEGER)")
    with pytest.raises(DatabaseError, match="has tables of something else"):
        open_database(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE theirs")
    upgrade(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseError, match="its tables are of version 9999"):
        open_database(database_url)
    with pytest.raises(DatabaseError, match="newer than this program"):
        upgrade(database_url)
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("board.db", "not a URL; write sqlite:///board.db"),
        ("mysql://root:secret@host/db", "knows SQLite and PostgreSQL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_a_url_that_cannot_be_the_boards_is_refused_without_its_password(url, said):
    with pytest.raises(DatabaseError, match=said) as caught:
        connect(url)
    assert "secret" not in str(caught.value)


def test_sqlite_waits_for_writers_and_minds_foreign_keys(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "busy_timeout", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "busy_timeout": 30_000, "foreign_keys": 1}
    engine.dispose()


def test_moments_keep_their_instant_and_come_back_in_utc(engine):
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
        with pytest.raises(StatementError, match="has no time zone"):
            session.flush()


def test_a_row_that_points_nowhere_is_refused(engine):
    with pytest.raises(IntegrityError), writing(engine) as session:
        session.add(Event(at=datetime.now(UTC), kind="claimed", submission_id=7))


def test_a_transaction_that_raises_leaves_nothing(engine):

    def spoil() -> None:
        with writing(engine) as session:
            session.add(Account(name="Ada", created_at=now(session)))
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoil()
    with reading(engine) as session:
        assert session.scalars(select(Account)).all() == []


# Submissions.


def test_a_submission_is_stored_and_comes_back_to_the_byte(engine):
    package = good_package(hyperparameters=5).files  # not a table, so it is refused first
    with pytest.raises(SubmissionError, match="must be a table"):
        submit(engine, Package(package))
    package = good_package("def make_agent(env): return 'ü'")
    made = submit(engine, package, "Ada")
    assert (made.state, made.new) == ("queued", True)
    with reading(engine) as session:
        assert package_of(session, made.id) == package
        stored = session.get(Submission, made.id)
        assert (stored.digest, stored.env_id, stored.method) == (package.digest, "Digits-ALMA-v0", "sm")
        assert stored.account.name == "Ada"
        assert stored.manifest["seeds"] == [0, 1, 2]
        assert "package" in inspect(stored).unloaded  # lists of submissions do not read their files
        with pytest.raises(NotFoundError, match="submission 99"):
            package_of(session, 99)


def test_the_same_files_sent_again_are_the_same_submission(engine):
    first = submit(engine, good_package(), "Ada")
    again = submit(engine, good_package(), "Bob")
    assert (again.id, again.new) == (first.id, False)
    other = submit(engine, good_package(name="B"), "Bob")
    assert other.id != first.id


def test_the_same_files_sent_at_once_are_one_submission(engine):
    package = good_package()
    made, errors = [], []

    def send(account: str) -> None:
        try:
            made.append(submit(engine, package, account))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(name,)) for name in ("Ada", "Ada", "Bob", "Bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({one.id for one in made}) == 1
    assert sum(one.new for one in made) == 1


def test_markup_and_sql_are_stored_as_they_are(engine):
    name = "'; DROP TABLE submissions; -- <script>alert(1)</script>"
    made = submit(engine, good_package(name=name), "Robert'); DROP TABLE accounts;--")
    with reading(engine) as session:
        stored = session.get(Submission, made.id)
        assert stored.name == name
        assert stored.account.name == "Robert'); DROP TABLE accounts;--"


def test_accounts_have_names_that_can_be_shown_and_may_be_disabled(engine):
    for name in ("", "a\nb", "a\u202eb", "x" * 81):
        with pytest.raises(SubmissionError, match="choose another name"):
            submit(engine, good_package(), name)
    with writing(engine) as session:
        with pytest.raises(SubmissionError, match="must be one of submitter, maintainer"):
            find_or_make_account(session, "Ada", "king")
        find_or_make_account(session, "Ada").disabled_at = now(session)
    with pytest.raises(SubmissionError, match="disabled; ask a maintainer"):
        submit(engine, good_package(), "Ada")


def test_the_driver_of_postgresql_is_the_installed_one():
    assert connect("postgres://a@b/c").url.drivername == "postgresql+psycopg"
    assert connect("postgresql://a@b/c").url.drivername == "postgresql+psycopg"
    assert isinstance(connect("postgresql+psycopg://a@b/c"), sqlalchemy.Engine)
