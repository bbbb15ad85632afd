"""A damaged row of the database hides only itself: no page and no list of the API fails, and a line says so.

Every column of every table gets values that the board never writes. SQLite stores any value in any column.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event, select, text

from leaderboard.board import queue, worker
from leaderboard.board.submissions import submit
from leaderboard.cli import main
from leaderboard.database.engine import connect, reading
from leaderboard.database.tables import Base, Submission
from leaderboard.verification.result import Finding

from ..conftest import package_of, replace_board, verification_of
from ..page_reader import BOARD, publish
from ..web_client import client_of, person

VALUES = [
    "'garbage'",
    "x'fffe00'",
    "-1",
    "1e400",
    "''",
    "'[]'",
    "'null'",
    "CAST(x'ff41' AS TEXT)",
    "99999999999999999999",
]
PAGES = [
    *("/", BOARD, f"{BOARD}?sort=comp&method=sm", "/submissions", "/submissions?state=flagged", "/review", "/account"),
    *("/submissions/1", "/submissions/2", "/submissions/3", "/compare?a=1&b=4", "/review?id=1", "/submit", "/rules"),
]
ANSWERS = [
    *("/boards", "/boards/Digits-ALMA-v0/0.1", "/submissions", "/submissions/1", "/submissions/2", "/submissions/3"),
    *("/submissions/1/audit", "/submissions/1/ledgers/0", "/submissions/1/package", "/accounts", "/tokens", "/me"),
    *(f"/boards/Digits-ALMA-v0/0.1/export?format={form}&runs={runs}" for form in ("csv", "json") for runs in (0, 1)),
]
PATHS = [*PAGES, *(f"/api/v1{path}" for path in ANSWERS)]
# A row of each table that belongs to submission 1, 2 or 3, to the account Ada, or to a token of hers.
COLUMNS = [
    (table.name, column.name)
    for table in Base.metadata.sorted_tables
    for column in table.columns
    if column.name != "id" and table.name != "identities"
]


@pytest.fixture(scope="module")
def filled(sqlite_board: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A board with two published submissions, a flagged, a failed and a queued one, and a token of a maintainer."""
    file = tmp_path_factory.mktemp("damage") / "board.db"
    shutil.copy(sqlite_board, file)
    engine = connect(f"sqlite:///{file}")
    publish(engine, Finding("info", "a", "b"), name="first", wait=5)
    publish(engine, Finding("suspicious", "a", "b"), name="second")
    submit(engine, package_of(name="third"))
    queue.fail(engine, queue.claim(engine, "w"), "no", retry=False)
    publish(engine, name="last", wait=5)
    submit(engine, package_of(name="waiting"))
    person(engine, "Ada")
    mia = person(engine, "Mia", "maintainer")
    engine.dispose()  # also writes its log into the file
    return file, mia.token


@pytest.fixture
def board(filled, sqlite_engine):
    """Return a function that damages a column in rows with an id, and opens the board."""
    file, token = filled

    def open_it(table: str, column: str, value: str, where: str):
        replace_board(sqlite_engine, file)
        with contextlib.closing(sqlite3.connect(sqlite_engine.url.database)) as plain, plain:  # without foreign keys
            plain.execute(f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {where}")
        return sqlite_engine, token

    return open_it


ROWS = {
    "accounts": "name = 'Ada'",
    "tokens": "account_id = (SELECT id FROM accounts WHERE name = 'Ada')",
    "submissions": "id = 1",
    "jobs": "submission_id = 1",
    "results": "submission_id = 1",
    "result_runs": "result_id = 1 AND seed = 0",
    "findings": "result_id = 1",
    "events": "submission_id = 1 AND kind = 'submitted'",
}


@pytest.fixture(scope="module")
def names_read(filled) -> dict[str, list[set[str]]]:
    """The words of each SQL statement, by the path whose response needs it; each path has an application of its own.

    A response can depend only on columns that its statements name: those of a damaged board are the same until one of
    them reads the damaged value.
    """
    file, token = filled
    found: dict[str, list[set[str]]] = {}
    for path in PATHS:
        engine = connect(f"sqlite:///{file}")
        words = found[path] = []

        @event.listens_for(engine, "before_cursor_execute")
        def note(connection, cursor, statement, *more, words=words):
            assert not re.search(r"(?<!count\()\*", statement), statement  # names its columns
            words.append(set(re.findall(r"\w+", statement)))

        with client_of(engine) as client:
            assert client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code < 500
        engine.dispose()
    return found


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_damaged_value_hides_only_its_row(board, names_read, table, column):
    number = COLUMNS.index((table, column))
    for value in VALUES[number % len(VALUES) :][:1]:
        engine, token = board(table, column, value, ROWS[table])
        with client_of(engine) as client:
            headers = {"Authorization": f"Bearer {token}"}
            for path in PATHS:
                if any({table, column} <= words for words in names_read[path]):
                    response = client.get(path, headers=headers)
                    assert response.status_code < 500, (value, path, response.text[-2000:])
            assert "last" in client.get("/submissions").text
            assert "last" in client.get(BOARD).text
            assert "second" in client.get("/review", headers=headers).text


@pytest.mark.parametrize("column", ["manifest", "state", "created_at"])
def test_a_line_names_the_damaged_submission(board, column):
    engine, token = board("submissions", column, "'garbage'", "id = 2")
    with client_of(engine) as client:
        headers = {"Authorization": f"Bearer {token}"}
        page = client.get("/submissions/2", headers=headers)
        assert (page.status_code, "submission 2: damaged in the database" in page.text) == (409, True)
        if column != "state":
            assert "Submission 2 is damaged in the database" in client.get("/review", headers=headers).text
        if column != "manifest":  # the list does not read the manifest
            assert "Submission 2 is damaged in the database" in client.get("/submissions").text
            assert client.get("/api/v1/submissions").json()["damaged"] == [2]


def test_the_command_line_names_the_damaged_submission(board, capsys):
    engine, _ = board("submissions", "state", "'garbage'", "id = 2")
    assert main(["status", "--database", str(engine.url)]) == 0
    out = capsys.readouterr().out
    assert "submission 2: damaged in the database, not shown" in out
    assert "last" in out


@pytest.mark.parametrize("column", ["cer_mean", "verified_at", "seeds"])
def test_the_standings_name_the_damaged_result(board, column):
    engine, _ = board("results", column, "'garbage'", "submission_id = 1")
    with client_of(engine) as client:
        page = client.get("/api/v1/boards/Digits-ALMA-v0/0.1").json()
        assert (page["damaged"], [line["name"] for line in page["lines"]]) == ([1], ["last"])
        assert "Submission 1 is damaged in the database" in client.get(BOARD).text


@pytest.mark.parametrize(("table", "column"), [one for one in COLUMNS if one[0] in ("submissions", "jobs", "accounts")])
def test_a_damaged_job_does_not_stop_the_others(board, table, column):
    for value in VALUES[:3]:
        where = "name = 'local'" if table == "accounts" else "submission_id = 5" if table == "jobs" else "id = 5"
        engine, _ = board(table, column, value, where)
        with engine.execution_options(writes=True).begin() as connection:
            connection.execute(
                text("UPDATE jobs SET lease_until = '2020-01-01 00:00:00.000000' WHERE lease_key IS NOT NULL")
            )
        healthy = submit(engine, package_of(name="healthy"), "Mia").id
        stop = worker._Stop()
        while (lease := queue.claim(engine, "w")) is not None:
            with contextlib.suppress(Exception):  # the loop of a worker logs it and goes on
                worker._do(engine, lease, lambda *_: verification_of(), stop, 60.0, 60.0)
        with reading(engine) as session:
            assert session.scalar(select(Submission.state).where(Submission.id == healthy)) == "verified", value


def test_a_worker_goes_on_after_a_job_that_cannot_be_written(engine, monkeypatch):
    for name in ("broken", "healthy"):
        submit(engine, package_of(name=name))
    whole = queue.finish

    def finish(engine, lease, verification):
        if lease.submission_id == 1:
            with engine.execution_options(writes=True).begin() as connection:
                connection.execute(text("UPDATE submissions SET manifest = 'garbage' WHERE id = 1"))
        whole(engine, lease, verification)

    monkeypatch.setattr(queue, "finish", finish)
    pauses = {"poll_seconds": 0.01, "backoff_seconds": 0.0}
    assert worker.work(engine, lambda *_: verification_of(), **pauses, lease_seconds=1.0, until_empty=True) == 1
    with reading(engine) as session:
        assert list(session.scalars(select(Submission.state).order_by(Submission.id)))[1] == "verified"
