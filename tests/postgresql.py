"""A PostgreSQL server for the tests: a new cluster in a temporary folder, reachable only through a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy


def programs() -> Path | None:
    """Return the folder of initdb and pg_ctl: from PATH, else of the newest Debian package."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


@contextmanager
def cluster() -> Iterator[str]:
    """Start a server and give the URL of its maintenance database; skip the test if no server can be started."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    home = Path(tempfile.mkdtemp(prefix="alma-pg-"))
    try:
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
            os.chown(home, user.pw_uid, user.pw_gid)
        _run(home, "initdb", "-U", "alma", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-k {home} -c listen_addresses= -c fsync=off -c max_connections=60"
        _run(home, "pg_ctl", "-l", str(home / "log"), "-o", options, "-w", "start")
        try:
            yield f"postgresql://alma@/postgres?host={home}"
        finally:
            _run(home, "pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def restart(url: sqlalchemy.URL) -> None:
    """Stop the server of a database at once, as a crash does, and start it again."""
    home = Path(str(url.query["host"]))
    _run(home, "pg_ctl", "-l", str(home / "log"), "-m", "immediate", "-w", "restart")


def _run(home: Path, program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL on the cluster in a folder, as the owner of the folder."""
    owner = home.stat()
    become: dict[str, Any] = {}
    if os.geteuid() == 0:
        become = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    words = [str(programs() / program), "-D", str(home / "data"), *arguments]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=600, **become)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def database(server: str, name: str, template: str = "template1") -> Iterator[str]:
    """Create a database from a template (by default an empty one), give its URL, and drop it at the end."""
    engine = sqlalchemy.create_engine(
        server.replace("postgresql:", "postgresql+psycopg:"),
        isolation_level="AUTOCOMMIT",
        poolclass=sqlalchemy.NullPool,
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield server.replace("/postgres?", f"/{name}?")
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
