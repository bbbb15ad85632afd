"""The time of the query of a standings page on a board of 10,000 submissions."""

from __future__ import annotations

import time

import numpy as np
import pytest

from .big_board import ENV, SUBMISSIONS, fill

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_page_of_the_standings_of_10000_submissions(benchmark, kind, tmp_path, request):
    pytest.importorskip("sqlalchemy")
    from leaderboard.board.standings import boards, standings
    from leaderboard.database.migrations import open_database

    sqlite = f"sqlite:///{tmp_path / 'board.db'}"
    engine = open_database(sqlite if kind == "sqlite" else request.getfixturevalue("postgresql_server"))
    fill(engine)
    if kind == "postgresql":
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql("ANALYZE")
    pages = [
        {},
        {"sort": "comp", "descending": True},
        {"sort": "final_error", "offset": 5_000},
        {"method": "gmoe"},
        {"budget_class": 12, "sort": "mem"},
        {"waiting_time": 50},
        {"method": "sm", "waiting_time": 10, "budget_class": 11},
    ]
    milliseconds: dict[str, list[float]] = {}
    processor: list[float] = []  # CPU time of this process; with SQLite it covers all of the work
    for _ in range(40):
        for page in pages:
            start, busy = time.perf_counter(), time.process_time()
            found = standings(engine, ENV, **page)
            milliseconds.setdefault(str(page), []).append(1e3 * (time.perf_counter() - start))
            processor.append(1e3 * (time.process_time() - busy))
            assert len(found.lines) == 50
    for page, times in milliseconds.items():
        print(f"\n{kind} {page}: median {np.median(times):.1f} ms, p95 {np.quantile(times, 0.95):.1f} ms", end="")
    together = np.concatenate(list(milliseconds.values()))
    start = time.perf_counter()
    (board,) = boards(engine)
    print(f"\n{kind}, boards: {1e3 * (time.perf_counter() - start):.1f} ms")
    assert board.submissions == SUBMISSIONS
    for what, times in (("wall", together), ("processor", processor)):
        print(
            f"{kind}, all pages, {what} time: median {np.median(times):.1f} ms, p95 {np.quantile(times, 0.95):.1f} ms"
        )
    benchmark.extra_info.update(milliseconds=milliseconds, processor=processor)
    benchmark.pedantic(lambda: standings(engine, ENV), rounds=50)
    engine.dispose()
