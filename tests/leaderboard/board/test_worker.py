"""Workers can be killed at any moment: no result is lost or written twice."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, text, update

from leaderboard.board import queue
from leaderboard.board.details import details, public
from leaderboard.board.standings import standings
from leaderboard.board.submissions import submit
from leaderboard.board.worker import work
from leaderboard.database.engine import reading, writing
from leaderboard.database.tables import Event, Job, Result, ResultRun, Submission
from leaderboard.errors import LeaseLostError, SubmissionError

from .. import fake_verify
from ..at_once import at_once
from ..conftest import kill, package_of, verification_of
from .stored_jobs import job_of

COUNT = 50  # submissions while workers are killed


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def states(engine) -> dict[str, int]:
    with reading(engine) as session:
        return dict(session.execute(select(Submission.state, func.count()).group_by(Submission.state)).all())


def test_killing_workers_at_random_moments_loses_and_duplicates_no_result(engine, board_url, nursery):
    numbers = random.Random(0)
    sent: list[int] = []
    workers = [nursery(board_url) for _ in range(3)]
    done, kills, end = 0, 0, time.monotonic() + 400
    while done < COUNT:
        # Wait for some results, so that the test ends on a slow machine; then kill at any moment of a verification.
        # Few submissions wait at a time, so that the workers are not done before they are killed.
        goal = min(COUNT, done + numbers.randint(1, 6))
        for index in range(len(sent) + 1, min(COUNT, goal + 6) + 1):
            sent.append(submit(engine, package_of(name=f"number {index}")).id)
        while (done := states(engine).get("verified", 0)) < goal:
            assert time.monotonic() < end, states(engine)
            time.sleep(0.05)
        time.sleep(numbers.uniform(0.0, 0.1))
        kill(workers.pop(numbers.randrange(3)))
        kills += 1
        workers.append(nursery(board_url))
    for worker in workers:
        kill(worker)
    assert kills >= 5
    with reading(engine) as session:
        results = {result.submission_id: result for result in session.scalars(select(Result))}
        assert sorted(results) == sent
        assert session.scalar(select(func.count()).select_from(Result)) == COUNT
        assert session.scalar(select(func.count()).select_from(ResultRun)) == 3 * COUNT
        for submission_id, result in results.items():
            number = fake_verify.number_in(session.get(Submission, submission_id).name)
            assert [(run.seed, run.comp) for run in result.runs] == [(seed, 20 * number) for seed in (0, 1, 2)]
        verified = select(Event.submission_id).where(Event.kind == "verified")
        assert sorted(session.scalars(verified)) == sent
        claims = session.scalar(select(func.count()).select_from(Event).where(Event.kind == "claimed"))
        assert claims > COUNT  # some jobs were interrupted and claimed again


def test_a_stopped_worker_returns_its_job_at_once(engine, board_url, nursery):
    sent = submit(engine, package_of(name="number 1")).id
    worker = nursery(board_url, "verify_for_ever", 60.0)
    until(lambda: job_of(engine, sent).state == "running")
    time.sleep(0.1)
    kill(worker, signal.SIGTERM)
    until(lambda: job_of(engine, sent).state == "queued")
    job = job_of(engine, sent)
    assert (job.attempts, job.lease_owner) == (0, None)
    assert states(engine) == {"queued": 1}
    assert queue.claim(engine, "another").submission_id == sent
    # The process has ended.
    until(lambda: subprocess.run(["kill", "-0", str(worker)], capture_output=True).returncode != 0)


def test_an_idle_worker_stops_on_sigterm(engine, board_url, nursery):
    worker = nursery(board_url)
    time.sleep(0.3)
    kill(worker, signal.SIGTERM)
    until(lambda: subprocess.run(["kill", "-0", str(worker)], capture_output=True).returncode != 0)


def test_a_long_verification_keeps_its_lease_and_reports_progress(engine):
    sent = submit(engine, package_of(name="number 1")).id
    thieves = []

    def slow(package, manifest, progress):
        progress("half way")
        first_end = job_of(engine, sent).lease_until

        def renewed_and_reported() -> bool:
            thieves.append(queue.claim(engine, "thief"))
            job = job_of(engine, sent)
            return job.lease_until > first_end and job.progress == "half way"

        until(renewed_and_reported)
        return verification_of()

    assert work(engine, slow, lease_seconds=9.0, until_empty=True) == 1
    assert set(thieves) == {None}
    assert states(engine) == {"verified": 1}


def test_a_verification_that_lost_its_lease_stops_and_is_discarded(engine):
    submit(engine, package_of(name="number 1"))
    messages = []

    def robbed(package, manifest, progress):
        if messages:
            return verification_of(comp=2)
        with writing(engine) as session:  # as if another worker had claimed the job
            session.execute(update(Job).values(lease_key="of another", lease_owner="another"))
        try:
            until(lambda: progress("still") is not None)
        except LeaseLostError as error:
            messages.append(str(error))
            with writing(engine) as session:
                session.execute(update(Job).values(state="queued"))
            raise

    assert work(engine, robbed, lease_seconds=0.3, poll_seconds=0.05, until_empty=True) == 1
    assert "its lease ended and another has claimed it" in messages[0]
    with reading(engine) as session:
        assert session.scalars(select(Result)).one().runs[0].comp == 20 * 9


def test_failed_attempts_are_repeated_and_the_last_error_is_stored(engine):
    sent = [submit(engine, package_of(name=f"number {index}")).id for index in (1, 2)]
    calls = []

    def unlucky(package, manifest, progress):
        calls.append(manifest.name)
        if manifest.name == "number 1" and calls.count("number 1") < 3:
            raise OSError("the disk is full")
        if manifest.name == "number 2":
            return verification_of((0,))
        return verification_of()

    assert work(engine, unlucky, poll_seconds=0.05, backoff_seconds=0.0, until_empty=True) == 1
    assert sorted(calls) == ["number 1"] * 3 + ["number 2"] * 3
    assert states(engine) == {"verified": 1, "failed": 1}
    assert job_of(engine, sent[0]).last_error is None
    assert "verify each seed once" in job_of(engine, sent[1]).last_error


def test_a_submission_that_cannot_run_fails_at_once(engine):
    sent = submit(engine, package_of(name="number 1")).id
    calls = []

    def refuse(package, manifest, progress):
        calls.append(1)
        raise SubmissionError("agent.py: make_agent returned None; return an agent")

    assert work(engine, refuse, until_empty=True) == 0
    assert calls == [1]
    assert job_of(engine, sent).last_error == "agent.py: make_agent returned None; return an agent"
    found = public(details(engine, sent))
    assert found.reason == "after 1 of 3 attempts: agent.py: make_agent returned None; return an agent"
    assert found.lines()[-1].endswith(f" UTC failed: {found.reason}")


def test_a_submission_under_other_rules_is_not_verified_and_can_be_sent_again(engine, monkeypatch):
    package, calls = package_of(name="number 1"), []
    sent = submit(engine, package).id
    for module in ("worker", "submissions"):  # as a new version of the project with other rules
        monkeypatch.setattr(f"leaderboard.board.{module}.RULES_VERSION", "0.2")

    def look(given, manifest, progress):
        calls.append(manifest.name)
        return verification_of()

    assert work(engine, look, until_empty=True) == 0
    assert (calls, states(engine)) == ([], {"failed": 1})
    assert "sent under rules 0.1; this worker verifies rules 0.2; send it again" in details(engine, sent).reason
    assert submit(engine, package).new
    assert work(engine, look, until_empty=True) == 1
    assert [len(standings(engine, "Digits-ALMA-v0", rules).lines) for rules in ("0.1", "0.2")] == [0, 1]


def test_a_verification_gets_the_package_and_the_manifest_that_were_sent(engine):
    package = package_of(name="number 1")
    submit(engine, package)
    seen = []

    def look(given, manifest, progress):
        seen.append((given, manifest.name))
        return verification_of()

    work(engine, look, until_empty=True)
    assert seen == [(package, "number 1")]


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_restart_of_the_database_server_loses_no_result(engine):
    submit(engine, package_of(name="number 1"))

    def cut_off(package, manifest, progress):
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(text(cut + " AND datname = current_database()"))
        return verification_of()

    assert work(engine, cut_off, poll_seconds=0.05, until_empty=True) == 1
    assert states(engine) == {"verified": 1}


def test_workers_in_threads_share_the_queue(engine):
    for index in range(12):
        submit(engine, package_of(name=f"number {index}"))
    done = at_once(lambda verify: work(engine, verify, poll_seconds=0.05, until_empty=True), *[fake_verify.verify] * 3)
    assert sum(done) == 12
    assert states(engine) == {"verified": 12}
