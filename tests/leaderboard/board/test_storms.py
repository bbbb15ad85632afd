"""Everything goes wrong at once while submissions arrive: none is lost, none is doubled, none is blamed for it.

Workers are killed, the database is locked, the disk of the workers is full, and the database server crashes and starts
again.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable

from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from leaderboard.board.submissions import submit
from leaderboard.database.engine import connect, reading
from leaderboard.database.tables import Event, Job, Result, ResultRun, Submission

from ... import postgresql
from .. import fake_verify
from ..conftest import package_of

COUNT = 50
UNLIMITED = resource.RLIM_INFINITY


def hold_the_database(engine, seconds: float) -> None:
    """Keep everyone else from writing."""
    statement = "BEGIN IMMEDIATE" if engine.dialect.name == "sqlite" else "BEGIN; LOCK TABLE jobs IN EXCLUSIVE MODE"
    other = connect(engine.url.render_as_string(hide_password=False))
    with other.connect() as connection:
        driver = connection.connection.driver_connection
        driver.rollback()
        driver.execute(statement)
        time.sleep(seconds)
        driver.rollback()
    other.dispose()


def restart_the_server(engine) -> None:
    """Let a database server crash, and start it again."""
    if engine.dialect.name == "postgresql":
        postgresql.restart(engine.url)


def fill_the_disk(workers: list[int], seconds: float) -> None:
    """Let every write of the workers to a file fail."""
    for most in (0, UNLIMITED):
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(worker, resource.RLIMIT_FSIZE, (most, UNLIMITED))
        time.sleep(0.0 if most else seconds)


def kill(worker: int) -> None:
    # A worker that starts while the server is down does not open the database, and has ended.
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)


def is_alive(worker: int) -> bool:
    return os.path.exists(f"/proc/{worker}")


def repeated(act: Callable[[], int]) -> int:
    """Act until the database answers; the same files are always the same submission."""
    end = time.monotonic() + 300
    while True:
        try:
            return act()
        except OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def verified(engine) -> int:
    def count() -> int:
        with reading(engine) as session:
            return session.scalar(select(func.count()).select_from(Result)) or 0

    return repeated(count)


def test_storms_lose_double_and_blame_nothing(engine, board_url, nursery):
    numbers = random.Random(6)  # all disasters happen among the first four
    ids: dict[int, int] = {}
    enough = threading.Event()  # set after every kind of disaster; the last submissions wait for it

    def send() -> None:
        for number in range(1, COUNT + 1):
            if number == COUNT - 10:
                enough.wait(300)
            package, account = package_of(name=f"number {number}"), f"account-{number % 7}"
            ids[number] = repeated(lambda package=package, account=account: submit(engine, package, account).id)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    workers = [nursery(board_url) for _ in range(2)]
    disasters, end = set(), time.monotonic() + 600
    while (done := verified(engine)) < COUNT:
        assert time.monotonic() < end, done
        workers = [worker if is_alive(worker) else nursery(board_url) for worker in workers]
        time.sleep(numbers.uniform(0.1, 0.5))
        if done >= COUNT - 5:
            continue
        disaster = numbers.randrange(4)
        disasters.add(disaster)
        if len(disasters) == 4:
            enough.set()
        match disaster:
            case 0:
                kill(workers.pop(numbers.randrange(2)))
                workers.append(nursery(board_url))
            case 1:
                hold_the_database(engine, 0.4)
            case 2:
                fill_the_disk(workers, 0.4)
            case 3:
                restart_the_server(engine)
    sender.join()
    for worker in workers:
        kill(worker)
    assert disasters == {0, 1, 2, 3}
    assert len(set(ids.values())) == COUNT
    with reading(engine) as session:
        names = dict(session.execute(select(Submission.id, Submission.name)).all())
        assert names == {id: f"number {number}" for number, id in ids.items()}
        assert set(session.scalars(select(Submission.state))) == {"verified"}
        assert session.scalar(select(func.count()).select_from(ResultRun)) == 3 * COUNT
        for result in session.scalars(select(Result)):
            number = fake_verify.number_in(names[result.submission_id])
            assert [(run.seed, run.comp) for run in result.runs] == [(seed, 20 * number) for seed in (0, 1, 2)]
        jobs = session.scalars(select(Job)).all()
        assert {(job.state, job.attempts) for job in jobs} == {("finished", 1)}  # no death of a worker counts
        kinds = dict(session.execute(select(Event.kind, func.count()).group_by(Event.kind)).all())
        assert sum(job.interruptions for job in jobs) == kinds.get("lease expired", 0) + kinds.get("interrupted", 0)
        assert kinds["verified"] == kinds["submitted"] == COUNT
        assert not {"failed", "attempt failed", "held", "damaged"} & set(kinds)
