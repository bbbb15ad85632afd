"""Migrations create the tables of the models, and an unknown version is refused."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from leaderboard.accounts.accounts import register
from leaderboard.accounts.tokens import authenticate, authenticate_session, open_session
from leaderboard.database import migrations
from leaderboard.database.engine import connect
from leaderboard.database.migrations import open_database, upgrade
from leaderboard.database.tables import Base
from leaderboard.errors import DatabaseError

from ..at_once import at_once


def test_models_and_migrations_agree(engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": Base.metadata}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_all_migrations_can_be_downgraded_and_upgraded_again(database_url):
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


def test_the_migration_of_sessions_keeps_tokens_and_turns_no_session_into_a_token(database_url):
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


def test_several_threads_can_open_an_empty_database_at_once(database_url):
    engines = at_once(open_database, *[database_url] * 4)
    for engine in engines:
        with engine.connect() as connection:
            assert set(Base.metadata.tables) < set(inspect(connection).get_table_names())
        engine.dispose()


def test_tables_of_another_version_or_program_are_refused(database_url):
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE theirs (id INTEGER)")
    for act in (open_database, upgrade):
        with pytest.raises(DatabaseError, match="has tables of another program; give"):
            act(database_url)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["theirs"]
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE theirs")
    upgrade(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseError, match="its tables have version 9999"):
        open_database(database_url)
    with pytest.raises(DatabaseError, match="newer than this program"):
        upgrade(database_url)
    engine.dispose()


@pytest.mark.parametrize("act", [open_database, upgrade])
def test_a_file_that_is_no_database_is_refused(tmp_path, act):
    file = tmp_path / "notes.txt"
    file.write_text("no database\n" * 100)
    with pytest.raises(DatabaseError, match=r"does not open \(file is not a database\); give an existing database"):
        act(f"sqlite:///{file}")
    assert file.read_text() == "no database\n" * 100


def test_a_failed_upgrade_of_an_empty_database_leaves_no_connection_open(database_url, monkeypatch):
    opened = []

    def connect_and_keep(url, **settings):
        opened.append(connect(url, **settings))
        return opened[-1]

    def fail(url):
        raise OSError("the disk is full")

    monkeypatch.setattr(migrations, "connect", connect_and_keep)
    monkeypatch.setattr(migrations, "upgrade", fail)
    with pytest.raises(OSError, match="the disk is full"):
        open_database(database_url)
    (engine,) = opened
    assert engine.pool.checkedin() == 0


def test_accounts_of_before_keep_their_names_and_the_oldest_of_names_that_look_alike_has_the_skeleton(database_url):
    from alembic import command

    upgrade(database_url)
    engine = connect(database_url)
    config = migrations.configuration()

    def move(how, to) -> None:
        with engine.execution_options(writes=True).begin() as connection:
            config.attributes["connection"] = connection
            how(config, to)

    move(command.downgrade, "0002")
    names = ["bob", "b ob", "b0b", "b\u043eb", "\u0411\u043e\u0431", "R\u00e9my"]
    with engine.execution_options(writes=True).begin() as connection:
        for name in names:
            row = {"name": name, "role": "submitter", "at": "2026-01-01 00:00:00+00:00"}
            connection.execute(text("INSERT INTO accounts (name, role, created_at) VALUES (:name, :role, :at)"), row)
    move(command.upgrade, "head")
    found = dict(list_skeletons(engine))
    assert list(found) == names
    assert (found["bob"], found["b ob"], found["b0b"]) == ("bob", None, None)
    assert all(found[name] for name in names[3:])
    engine.dispose()


def list_skeletons(engine) -> list[tuple[str, str | None]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text("SELECT name, skeleton FROM accounts ORDER BY id"))]
