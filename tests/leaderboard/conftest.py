"""Submissions, ledgers and verifications for tests, databases of both kinds, and processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from alma_env import Ledger, Row
from leaderboard.database.engine import connect
from leaderboard.database.migrations import upgrade
from leaderboard.database.tables import Base
from leaderboard.rules import TICKS
from leaderboard.sandbox import sandbox
from leaderboard.sandbox.cgroups import ControlGroup, control_group
from leaderboard.submission.package import Package
from leaderboard.verification.result import Finding, Verification, VerifiedRun


def ledger_of(seed: int, env_id: str = "Digits-ALMA-v0", comp: int = 1000) -> Ledger:
    """Return a ledger such as a run of this seed could write."""
    return Ledger(
        [
            Row(
                tick=tick,
                error=0.9 / (1 + tick + seed % 7),
                parameters=100 + seed,
                buffers=0,
                inference_flops=12.5,
                flops={"training": comp + seed, "validation": 7} if tick else {},
                paper_flops=600 if tick else 0,
                declared=(),
                digest="d" * 16,
                refused=False,
                seconds=0.25,
            )
            for tick in range(TICKS[env_id] + 1)
        ]
    )


def manifest_text(**changes: object) -> str:
    values: dict[str, object] = {
        "name": "A",
        "authors": ["Ada"],
        "env": "Digits-ALMA-v0",
        "seeds": [0, 1, 2],
        "method": "sm",
        "description": "d",
    } | changes
    return "".join(f"{key} = {value!r}\n" for key, value in values.items())


def package_of(agent: str = "def make_agent(env):\n    return None\n", **changes: object) -> Package:
    """Return a submission that passes the check."""
    return Package({"agent.py": agent.encode(), "submission.toml": manifest_text(**changes).encode()})


@pytest.fixture
def package() -> Package:
    return package_of()


def verification_of(seeds=(0, 1, 2), *findings: Finding, comp: int = 1000) -> Verification:
    """Return the verification of an honest submission, with the given findings."""
    runs = tuple(VerifiedRun(seed, ledger_of(seed, comp=comp)) for seed in seeds)
    return Verification(runs, tuple(findings), {"torch": "2", "isolation": "none, a test"})


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of database."""
    return request.param


@pytest.fixture
def database_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty database."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'board.db'}"
        return
    with request.getfixturevalue("postgresql_database")(uuid.uuid4().hex) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an SQLite file with the board's tables, to be copied."""
    file = tmp_path_factory.mktemp("board") / "board.db"
    upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def postgresql_board(postgresql_database: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """Return the name of a PostgreSQL database with the board's tables, to be copied."""
    with postgresql_database("board") as url:
        upgrade(url)
        yield "board"


@pytest.fixture
def board_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a database with the board's tables."""
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_board"), tmp_path / "board.db")
        yield f"sqlite:///{tmp_path / 'board.db'}"
        return
    template = request.getfixturevalue("postgresql_board")
    with request.getfixturevalue("postgresql_database")(uuid.uuid4().hex, template) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return an engine for an SQLite file, which tests replace."""
    opened = connect(f"sqlite:///{tmp_path_factory.mktemp('shared') / 'board.db'}")
    yield opened
    opened.dispose()


@pytest.fixture(scope="session")
def postgresql_engine(
    postgresql_board: str, postgresql_database: Callable[..., AbstractContextManager[str]]
) -> Iterator[Engine]:
    """Return an engine for a PostgreSQL database with the board's tables, which tests empty."""
    with postgresql_database("shared", postgresql_board) as url:
        opened = connect(url)
        yield opened
        opened.dispose()


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Open a database with the board's tables, which are empty.

    The tests share an engine for each kind of database, because an engine compiles each statement once. A test that
    gives ``board_url`` to other processes has a database of its own, which they may use after the test.
    """
    if "board_url" in request.fixturenames:
        opened = connect(request.getfixturevalue("board_url"))
        yield opened
        opened.dispose()
        return
    opened = request.getfixturevalue(f"{kind}_engine")
    if kind == "sqlite":
        replace_board(opened, request.getfixturevalue("sqlite_board"))
    else:
        with opened.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '30s'")
            connection.exec_driver_sql(f"TRUNCATE {', '.join(Base.metadata.tables)} RESTART IDENTITY")
    yield opened


def replace_board(engine: Engine, by: Path) -> None:
    """Copy a file of SQLite over that of an engine."""
    engine.dispose()
    file = Path(str(engine.url.database))
    for old in file.parent.glob(f"{file.name}*"):  # with the write-ahead log
        old.unlink()
    shutil.copy(by, file)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Callable[..., int]]:
    """Return a function that starts a worker, or a command with the given arguments, and returns the process id."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("nursery.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def start(what: str | list[str], verification: str = "verify", lease_seconds: float = 1.5) -> int:
        line = f"{what} {verification} {lease_seconds}" if isinstance(what, str) else json.dumps(what)
        process.stdin.write(line + "\n")
        process.stdin.flush()
        while not (line := process.stdout.readline().strip()).isdigit():
            assert line == "started", line  # printed by workers
        return int(line)

    yield start
    process.stdin.close()
    process.wait(120)
    process.stdout.close()


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process of the nursery, which must not have ended before."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pytest.fail(f"process {pid} ended without a signal")


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[ControlGroup | None]:
    """Return the list of the sandboxes' control groups; None stands for one that this user cannot create."""
    created = []

    @contextmanager
    def recorded(name: str, **limits: int) -> Iterator[ControlGroup | None]:
        with control_group(name, **limits) as group:
            created.append(group)
            yield group

    monkeypatch.setattr(sandbox, "control_group", recorded)
    return created
