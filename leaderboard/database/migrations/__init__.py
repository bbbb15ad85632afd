"""The history of the tables, as Alembic's migrations, and how a database is brought up to date."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import OperationalError

from leaderboard.engine import BUSY_SECONDS, connect
from leaderboard.errors import DatabaseError

_LOCK = 0x616C6D61  # "alma": the number of PostgreSQL's lock, by which one process migrates at a time


def upgrade(url: str) -> None:
    """Make the tables, or bring them up to date. Nothing happens where they are; several processes may call it at once.

    Raises:
        DatabaseError: the URL is none, or the database is of a newer version.
    """
    engine = connect(url)
    try:
        with engine.execution_options(writes=True).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            if current(connection) == head():
                return
            config = configuration()
            config.attributes["connection"] = connection
            _require_known(connection)
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def open_database(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """An engine for a database whose tables are of this version. An empty database gets its tables.

    Args:
        url: of SQLite in a file or of PostgreSQL.
        busy_seconds: how long a writer waits for another one to finish, before it is told that the database is busy.

    Raises:
        DatabaseError: the URL is none, nothing answers there, or the tables are of another version.
    """
    engine = connect(url, busy_seconds=busy_seconds)
    shown = engine.url.render_as_string(hide_password=True)
    try:
        connection = engine.connect()
    except OperationalError as error:
        engine.dispose()
        raise DatabaseError(
            f"database {shown}: does not open ({str(error.orig).strip()}); give one that is there, or a new file in a "
            "folder that is"
        ) from error
    with connection:
        # In this order, since another process may be making the tables: who sees tables then sees their version, too.
        tables = inspect(connection).get_table_names()
        found = current(connection)
    if found is None and not tables:
        upgrade(url)
    elif found is None:
        engine.dispose()
        raise DatabaseError(f"database {shown}: has tables of something else; give the board a database of its own")
    elif found != head():
        engine.dispose()
        raise DatabaseError(
            f"database {shown}: its tables are of version {found}, this program's are {head()}; stop the workers, "
            "make a copy and run `alma-leaderboard upgrade`, or install the version of alma-env that made them"
        )
    return engine


def configuration() -> Config:
    """Alembic's configuration: where the migrations lie."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def head() -> str:
    """The newest version of the tables that this program knows."""
    newest = ScriptDirectory.from_config(configuration()).get_current_head()
    assert newest is not None
    return newest


def current(connection: Connection) -> str | None:
    """The version of a database's tables, None where there are none."""
    return MigrationContext.configure(connection).get_current_revision()


def _require_known(connection: Connection) -> None:
    found = current(connection)
    known = {script.revision for script in ScriptDirectory.from_config(configuration()).walk_revisions()}
    if found is not None and found not in known:
        raise DatabaseError(
            f"database of version {found}: newer than this program, which knows {head()}; install a newer alma-env"
        )
