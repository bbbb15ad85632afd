"""A database that was made before the modules moved into rooms still opens and works.

``before_the_rooms.db.xz`` holds three submissions of the account Ada: one verified, one flagged, one queued.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from leaderboard.accounts.accounts import make_account
from leaderboard.board import queue
from leaderboard.board.details import details
from leaderboard.board.results import decide
from leaderboard.board.standings import standings
from leaderboard.board.submissions import package_of
from leaderboard.database.engine import reading
from leaderboard.database.migrations import open_database, upgrade
from leaderboard.submission.static_check import check

from ..conftest import ledger_of, verification_of


@pytest.fixture
def engine(tmp_path):
    file = tmp_path / "board.db"
    file.write_bytes(lzma.decompress(Path(__file__).with_name("before_the_rooms.db.xz").read_bytes()))
    upgrade(f"sqlite:///{file}")
    engine = open_database(f"sqlite:///{file}")  # refuses tables of another version
    yield engine
    engine.dispose()


def ranked(engine) -> list[str]:
    return sorted(line.name for line in standings(engine, "Digits-ALMA-v0").lines)


def test_the_standings_show_the_verified_submission(engine):
    assert ranked(engine) == ["published"]
    (line,) = standings(engine, "Digits-ALMA-v0").lines
    scores = [ledger_of(seed).score() for seed in (0, 1, 2)]
    assert line.cer.mean == pytest.approx(sum(score.cer for score in scores) / 3)
    assert [run.comp for run in details(engine, line.submission_id).runs] == [score.comp for score in scores]


def test_every_stored_package_can_be_read_and_passes_the_check(engine):
    with reading(engine) as session:
        names = [check(package_of(session, number)).manifest.name for number in (1, 2, 3)]
    assert names == ["published", "flagged", "waiting"]


def test_a_maintainer_can_accept_the_flagged_submission(engine):
    make_account(engine, "Mia", "maintainer")
    decide(engine, 2, "Mia", accept=True, reason="the numbers are plausible")
    assert ranked(engine) == ["flagged", "published"]


def test_a_worker_can_claim_and_finish_the_queued_job(engine):
    lease = queue.claim(engine, "worker")
    assert lease.submission_id == 3
    queue.finish(engine, lease, verification_of((6, 7, 8)))
    assert ranked(engine) == ["published", "waiting"]
    assert queue.claim(engine, "worker") is None
