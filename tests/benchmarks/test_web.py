"""The speed of the web pages on a board of 10,000 submissions, with one server process and one client process."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from .big_board import ENV, WITH_LEDGERS, fill

pytestmark = pytest.mark.benchmark

BOARD = f"/boards/{ENV}/0.1"
CONNECTIONS = 8
SECONDS = 10.0
PAUSES = (None, 9.0, 3.0)  # seconds between changes of the board: no change, one change, three changes
WARM_UP_SECONDS = 5.0  # most pages are requested once during the warm-up
SERVER = """
import sys, uvicorn
from leaderboard.database.migrations import open_database
from leaderboard.web.app import create_app
from leaderboard.web.guard.settings import Rate, Settings
app = create_app(open_database(sys.argv[1]), Settings(requests=Rate(0, 1)))  # all requests come from one address here
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start a server process; give its port, the engine of its board, and its process id."""
    pytest.importorskip("fastapi")
    from leaderboard.database.migrations import open_database

    url = f"sqlite:///{tmp_path_factory.mktemp('web') / 'board.db'}"
    engine = open_database(url)
    fill(engine)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SERVER, url, str(port)])
    try:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port, engine, process.pid
    finally:
        process.terminate()
        process.wait()
        engine.dispose()


class Connection:
    """An open connection with little work on the side of the client."""

    async def open(self, port: int) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        return self

    async def get(self, path: str) -> tuple[int, bytes]:
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        return int(lines[0].split()[1]), await self.reader.readexactly(length)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def table_pages() -> list[str]:
    """Return distinct pages of the standings, by order, filter and page number."""
    from leaderboard.database.tables import METRICS

    pages = [
        f"{BOARD}?sort={sort}&descending={way}&page={n}" for sort in METRICS for way in (0, 1) for n in (1, 7, 150)
    ]
    pages += [f"{BOARD}?method={method}&sort={sort}" for method in ("sm", "ens", "gmoe", "ff") for sort in METRICS]
    pages += [f"{BOARD}?waiting_time={wait}&page={n}" for wait in (1, 10, 50) for n in (1, 2, 30)]
    return pages + [f"{BOARD}?budget_class={k}&method=sm" for k in (10, 11, 12, 13, 14)]


def processor_seconds(pid: int) -> float:
    """Return the CPU seconds of a process; unlike the wall time, they hardly depend on other processes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(name: str, seconds: list[float]) -> None:
    p50, p95, p99 = 1e3 * np.quantile(seconds, (0.5, 0.95, 0.99))
    print(f"\n{name}: p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms (n={len(seconds)})", end="")


def unpacked(body: bytes) -> str:
    return zlib.decompress(body, 31).decode() if body[:2] == b"\x1f\x8b" else body.decode()


def test_the_latency_of_computed_and_of_cached_pages(server, benchmark):
    port, _, pid = server

    async def measure() -> tuple[list[float], ...]:
        connection = await Connection().open(port)
        computed, cached, first, busy = [], [], [], []
        for kind in (first, computed, cached):
            pages = [f"{BOARD}?page=3"] if kind is first else table_pages()
            before = processor_seconds(pid)
            for path in pages * (5 if kind is cached else 1):
                start = time.perf_counter()
                status, body = await connection.get(path)
                kind.append(time.perf_counter() - start)
                assert status == 200
                assert unpacked(body).count("data-row=") == 50
            busy.append(1e3 * (processor_seconds(pid) - before) / len(kind))
        await connection.close()
        return first, computed, cached, busy

    first, computed, cached, busy = asyncio.run(measure())
    print(f"\nthe very first page, which reads the whole board: {1e3 * first[0]:.0f} ms", end="")
    report("distinct pages of the standings, computed", computed)
    report("the same pages, from the cache", cached)
    print(f"\nCPU time of the server per page: {busy[1]:.1f} ms computed, {busy[2]:.1f} ms from the cache", end="")
    benchmark.extra_info.update(computed=computed, cached=cached)
    benchmark.pedantic(lambda: None)


MIXTURE = {
    "the first page of the standings": 50,
    "another page of the standings, of 74": 22,
    "the first page of the site": 8,
    "a submission, of 100": 10,
    "the list of submissions": 2,
    "the style sheet": 4,
    "the standings for programs": 4,
}


def addresses(numbers: random.Random) -> str:
    (kind,) = numbers.choices(list(MIXTURE), list(MIXTURE.values()))
    return {
        "the first page of the standings": BOARD,
        "another page of the standings, of 74": numbers.choice(table_pages()),
        "the first page of the site": "/",
        "a submission, of 100": f"/submissions/{numbers.randint(1, WITH_LEDGERS)}",
        "the list of submissions": "/submissions",
        "the style sheet": "/static/board.css",
        "the standings for programs": f"/api/v1{BOARD}?limit=20",
    }[kind]


def changes(pause: float | None) -> str:
    return "no changes" if pause is None else f"the board changes every {pause:g} s"


@pytest.mark.parametrize("pause", PAUSES, ids=changes)
def test_requests_per_second_of_one_process(server, pause, benchmark):
    port, engine, pid = server
    numbers = random.Random(1)
    paths = [addresses(numbers) for _ in range(20_000)]
    seconds: list[float] = []
    statuses: Counter[int] = Counter()

    async def client(until: float) -> None:
        connection = await Connection().open(port)
        while time.perf_counter() < until:
            path = paths[sum(statuses.values()) % len(paths)]
            start = time.perf_counter()
            status, body = await connection.get(path)
            seconds.append(time.perf_counter() - start)
            statuses[status] += 1
            assert body
        await connection.close()

    async def publish(until: float) -> None:
        from leaderboard.database.engine import writing
        from leaderboard.database.tables import Event

        while pause is not None and time.perf_counter() + pause / 2 < until:
            await asyncio.sleep(pause / 2)
            with writing(engine) as session:
                session.add(Event(at=datetime.now(UTC), kind="verified", submission_id=1))
            await asyncio.sleep(pause / 2)

    async def load(seconds: float) -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(publish(until), *(client(until) for _ in range(CONNECTIONS)))

    asyncio.run(load(WARM_UP_SECONDS))
    seconds.clear()
    statuses.clear()
    before = processor_seconds(pid)
    asyncio.run(load(SECONDS))
    used = processor_seconds(pid) - before
    assert set(statuses) == {200}
    print(
        f"\n{changes(pause)}: {len(seconds) / SECONDS:.0f} requests/s, {CONNECTIONS} connections, {SECONDS:.0f} s",
        end="",
    )
    report("of these", seconds)
    print(f"\nper second of the server's CPU time: {len(seconds) / used:.0f} requests", end="")
    print(f"\nmixture in percent: {MIXTURE}", end="")
    benchmark.extra_info.update(requests_per_second=len(seconds) / SECONDS)
    benchmark.pedantic(lambda: None)
