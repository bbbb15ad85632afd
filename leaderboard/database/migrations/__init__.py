"""The versions of the tables as Alembic migrations; open a database and upgrade it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, exc, inspect, text

from leaderboard.database.engine import BUSY_SECONDS, connect
from leaderboard.errors import DatabaseError

_LOCK = 0x616C6D61  # "alma": id of the PostgreSQL lock that lets one process migrate at a time


def upgrade(url: str) -> None:
    """Create the tables, or upgrade them to the newest version. Several processes can call this at once.

    Raises:
        DatabaseError: the URL is invalid, the database does not answer, or the tables have a newer version or are of
            another program.
    """
    engine = connect(url)
    try:
        _look(engine)
        with engine.execution_options(writes=True).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            found = current(connection)
            if found == head():
                return
            if found is None and set(inspect(connection).get_table_names()) - {"alembic_version"}:
                raise _foreign(engine)
            config = configuration()
            known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
            if found is not None and found not in known:
                raise DatabaseError(
                    f"database of version {found}: newer than this program, which knows {head()}; install a newer "
                    "alma-env"
                )
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def open_database(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine for a database whose tables have the newest version. An empty database gets its tables.

    The arguments are those of `leaderboard.database.engine.connect`.

    Raises:
        DatabaseError: the URL is invalid, the database does not answer, or the tables have another version.
    """
    engine = connect(url, busy_seconds=busy_seconds)
    shown = engine.url.render_as_string(hide_password=True)
    with ExitStack() as on_error:
        on_error.callback(engine.dispose)
        tables, found = _look(engine)
        if found is None and not tables:
            upgrade(url)
        elif found is None:
            raise _foreign(engine)
        elif found != head():
            raise DatabaseError(
                f"database {shown}: its tables have version {found}, this program needs {head()}; stop the workers, "
                "copy the database and run `alma-leaderboard upgrade`, or install the version of alma-env that made "
                "the tables"
            )
        on_error.pop_all()
    return engine


def _foreign(engine: Engine) -> DatabaseError:
    shown = engine.url.render_as_string(hide_password=True)
    return DatabaseError(f"database {shown}: has tables of another program; give the board a separate database")


def _look(engine: Engine) -> tuple[list[str], str | None]:
    """Return the names of the tables and their version, or raise DatabaseError if the database cannot be read."""
    try:
        with engine.connect() as connection:
            # The tables first: another process can create them and their version between the two reads, in one
            # transaction.
            tables = inspect(connection).get_table_names()
            return tables, current(connection)
    except exc.DatabaseError as error:
        shown = engine.url.render_as_string(hide_password=True)
        raise DatabaseError(
            f"database {shown}: does not open ({str(error.orig).strip()}); give an existing database, or a new file in "
            "an existing folder"
        ) from error


def configuration() -> Config:
    """Return Alembic's configuration with the folder of the migrations."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def head() -> str:
    """Return the newest version of the tables that this program knows."""
    newest = ScriptDirectory.from_config(configuration()).get_current_head()
    assert newest is not None
    return newest


def current(connection: Connection) -> str | None:
    """Return the version of a database's tables; None if it has no tables."""
    return MigrationContext.configure(connection).get_current_revision()
