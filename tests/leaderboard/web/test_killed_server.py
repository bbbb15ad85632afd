"""Server and workers can be killed at any moment while submissions arrive: none is lost or duplicated."""

from __future__ import annotations

import random
import socket
import threading
import time

import httpx2
import pytest
from sqlalchemy import func, select

from leaderboard.client import http
from leaderboard.client.client import Client
from leaderboard.database.engine import reading
from leaderboard.database.tables import Job, Result, ResultRun, Submission

from .. import fake_verify
from ..conftest import kill, package_of
from ..web_client import person


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def responds(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/api/v1/health", timeout=10).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.parametrize(("kind", "count"), [("sqlite", 20), ("postgresql", 15)])
def test_killing_server_and_workers_at_random_moments_loses_and_duplicates_nothing(
    engine, board_url, nursery, count, monkeypatch
):
    monkeypatch.setattr(http, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(http, "LONGEST_PAUSE_SECONDS", 5.0)
    numbers = random.Random(0)
    ada = person(engine, "Ada")
    port = free_port()
    serve = ["serve", "--port", str(port), "--database", board_url, "--no-baselines"]
    serve += ["--submissions-per-day", "1000", "--waiting-per-account", "1000", "--waiting-per-address", "1000"]
    processes = {"server": nursery(serve), "first": nursery(board_url), "second": nursery(board_url)}
    ids: dict[int, int] = {}
    errors: list[Exception] = []
    # Set after enough kills. The last submission waits for it, so that a fast machine does not end the test too early.
    enough = threading.Event()

    def send(share: range) -> None:
        with Client(f"http://127.0.0.1:{port}", ada.token, attempts=100, timeout=60) as client:
            for number in share:
                if number == count:
                    enough.wait(300)
                try:
                    ids[number] = client.submit(package_of(name=f"number {number}")).id
                except Exception as error:
                    errors.append(error)
                time.sleep(random.uniform(0.0, 0.1))

    senders = [threading.Thread(target=send, args=(range(first, count + 1, 3),)) for first in (1, 2, 3)]
    for sender in senders:
        sender.start()
    kills = dict.fromkeys(processes, 0)
    end = time.monotonic() + 600
    while True:
        time.sleep(numbers.uniform(0.05, 0.6))
        with reading(engine) as session:
            if session.scalar(select(func.count()).select_from(Result)) == count or errors:
                break
        assert time.monotonic() < end, "it took too long"
        who = numbers.choice(list(processes))
        kill(processes[who])
        kills[who] += 1
        if min(kills.values()) >= 2:
            enough.set()
        time.sleep(numbers.uniform(0.0, 0.05))
        processes[who] = nursery(serve if who == "server" else board_url)
        while who == "server" and not responds(port):  # so that the test ends on a slow machine
            assert time.monotonic() < end, "the server does not restart"
            time.sleep(0.02)
    for sender in senders:
        sender.join(300)
    for process in processes.values():
        kill(process)
    print(f"killed: {kills}")
    assert errors == []
    assert min(kills.values()) >= 2
    assert sorted(ids) == list(range(1, count + 1))
    with reading(engine) as session:
        names = dict(session.execute(select(Submission.id, Submission.name)).all())
        assert names == {id: f"number {number}" for number, id in ids.items()}
        assert session.scalar(select(func.count()).select_from(Result)) == count
        assert session.scalar(select(func.count()).select_from(ResultRun)) == 3 * count
        assert set(session.scalars(select(Job.state))) == {"finished"}
        for result in session.scalars(select(Result)):
            number = fake_verify.number_in(names[result.submission_id])
            assert [(run.seed, run.comp) for run in result.runs] == [(seed, 20 * number) for seed in (0, 1, 2)]
