"""Every job runs at least once and has exactly one result, even if workers are killed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from alma_env import Ledger
from leaderboard.board import jobs, queue, results
from leaderboard.board.details import details
from leaderboard.board.submissions import submit
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Account, AuditFinding, Event, Job, Result, ResultRun, Submission
from leaderboard.errors import LeaseLostError, NotFoundError
from leaderboard.verification.result import Finding, Verification, VerifiedRun

from ..at_once import at_once
from ..conftest import ledger_of, package_of, verification_of
from .stored_jobs import end_leases_and_pauses, job_of


def send(engine, count=1) -> list[int]:
    return [submit(engine, package_of(name=f"number {index}")).id for index in range(count)]


def state_of(engine, submission_id) -> str:
    with reading(engine) as session:
        return session.get(Submission, submission_id).state


def count(engine, table) -> int:
    with reading(engine) as session:
        return session.scalar(select(func.count()).select_from(table))


def test_each_job_is_claimed_once_and_the_oldest_first(engine):
    sent = send(engine, 3)
    leases = [queue.claim(engine, f"w{index}") for index in range(4)]
    assert [lease and lease.submission_id for lease in leases] == [*sent, None]
    assert len({lease.key for lease in leases[:3]}) == 3
    assert state_of(engine, sent[0]) == "running"


def test_concurrent_workers_get_different_jobs(engine):
    sent = send(engine, 12)

    def take(worker: str) -> list[int]:
        got = []
        while (lease := queue.claim(engine, worker)) is not None:
            got.append(lease.submission_id)
        return got

    taken = at_once(take, "w0", "w1", "w2", "w3")
    assert sorted(id for ids in taken for id in ids) == sent


def test_a_result_has_runs_summary_and_findings(engine):
    (sent,) = send(engine)
    lease = queue.claim(engine, "w")
    note = Finding("info", "claim-none", "nothing was claimed", seed=1)
    queue.finish(engine, lease, verification_of((0, 1, 2), note))
    with reading(engine) as session:
        result = session.scalars(select(Result)).one()
        scores = [ledger_of(seed).score() for seed in (0, 1, 2)]
        assert [run.cer for run in result.runs] == [score.cer for score in scores]
        assert [run.comp for run in result.runs] == [score.comp for score in scores]
        assert [results.ledger_of(run) for run in result.runs] == [ledger_of(seed) for seed in (0, 1, 2)]
        assert result.cer_mean == pytest.approx(sum(score.cer for score in scores) / 3)
        assert result.cer_half > 0
        assert (result.seeds, result.published, result.flagged, result.budget_class) == (3, True, False, 5)
        assert [(f.severity, f.code, f.text, f.seed) for f in result.findings] == [
            ("info", "claim-none", "nothing was claimed", 1)
        ]
        assert result.environment["isolation"] == "none, a test"
        assert result.submission.state == "verified"
        assert [(event.kind, event.worker) for event in session.scalars(select(Event).order_by(Event.id))] == [
            ("submitted", None),
            ("claimed", "w"),
            ("verified", "w"),
        ]
    job = job_of(engine, sent)
    assert (job.state, job.attempts, job.lease_owner, job.lease_key) == ("finished", 1, None, None)


def test_numbers_beyond_63_bits_are_exact(engine):
    send(engine)
    huge = 10**20 + 1
    queue.finish(engine, queue.claim(engine, "w"), verification_of(comp=huge))
    with reading(engine) as session:
        result = session.scalars(select(Result)).one()
        assert [run.comp for run in result.runs] == [20 * (huge + seed + 7) for seed in (0, 1, 2)]
        assert result.comp_mean == pytest.approx(2e21)
        assert result.budget_class == 22


@pytest.mark.parametrize(
    ("severity", "state", "published"),
    [("info", "verified", True), ("suspicious", "flagged", False), ("fatal", "rejected", False)],
)
def test_the_most_severe_finding_determines_the_state(engine, severity, state, published):
    (sent,) = send(engine)
    findings = (Finding("info", "a", "x"), Finding(severity, "b", "y"), Finding("info", "c", "z"))
    queue.finish(engine, queue.claim(engine, "w"), verification_of((0, 1, 2), *findings))
    assert state_of(engine, sent) == state
    with reading(engine) as session:
        assert session.scalars(select(Result.published)).one() is published


def test_a_rejected_submission_needs_no_runs(engine):
    (sent,) = send(engine)
    fatal = Finding("fatal", "crash", "make_agent raised NUL \0 and \ud800")
    queue.finish(engine, queue.claim(engine, "w"), verification_of((1,), fatal))
    assert state_of(engine, sent) == "rejected"
    with reading(engine) as session:
        result = session.scalars(select(Result)).one()
        assert (result.seeds, result.cer_mean, result.budget_class) == (1, None, None)
        assert result.findings[0].text == "make_agent raised NUL \ufffd and ?"


def _with_errors(error: float) -> Ledger:
    return Ledger([dataclasses.replace(row, error=error) for row in ledger_of(0)])


@pytest.mark.parametrize(
    ("verification", "message"),
    [
        (verification_of((0, 1)), "verify each seed once"),
        (verification_of((0, 1, 2, 3)), "verify each seed once"),
        (verification_of((0, 1, 1)), "verify each seed once"),
        (verification_of((0, 1, 7), Finding("fatal", "a", "b")), "verify each seed once"),
        (verification_of(()), "verify each seed once"),
        (
            Verification(tuple(VerifiedRun(seed, ledger_of(seed, "Text-ALMA-v0")) for seed in (0, 1, 2))),
            "5 rows in the ledger; Digits-ALMA-v0 has 21",
        ),
        (
            Verification(tuple(VerifiedRun(seed, _with_errors(1e308)) for seed in (0, 1, 2))),
            "the sum of its errors, the CER, must be finite",
        ),
    ],
)
def test_an_incomplete_verification_writes_nothing(engine, verification, message):
    send(engine)
    lease = queue.claim(engine, "w")
    with pytest.raises(ValueError, match=message):
        queue.finish(engine, lease, verification)
    assert (count(engine, Result), count(engine, ResultRun)) == (0, 0)
    queue.finish(engine, lease, verification_of())


def test_a_job_can_be_claimed_again_after_its_lease(engine):
    (sent,) = send(engine)
    first = queue.claim(engine, "dies")
    assert queue.claim(engine, "other") is None
    end_leases_and_pauses(engine)
    second = queue.claim(engine, "other")
    assert (second.submission_id, second.attempt) == (sent, 2)
    assert second.key != first.key
    with reading(engine) as session:
        kinds = [event.kind for event in session.scalars(select(Event).order_by(Event.id))]
    assert kinds == ["submitted", "claimed", "lease expired", "claimed"]


def test_a_renewal_extends_the_lease_and_stores_the_progress(engine):
    (sent,) = send(engine)
    lease = queue.claim(engine, "w", lease_seconds=0.0)
    first_end = job_of(engine, sent).lease_until
    queue.renew(engine, lease, 60.0, "seed 1, tick 3 of 20\0" + "x" * 500)
    assert queue.claim(engine, "other") is None
    job = job_of(engine, sent)
    assert job.lease_until > first_end + timedelta(seconds=50)
    assert job.progress.startswith("seed 1, tick 3 of 20\ufffdxxx")
    assert len(job.progress) == 200


@pytest.mark.parametrize("same_name", [True, False])
def test_a_worker_without_its_lease_cannot_write(engine, same_name):
    (sent,) = send(engine)
    stale = queue.claim(engine, "w")
    end_leases_and_pauses(engine)
    fresh = queue.claim(engine, "w" if same_name else "other")

    def try_everything() -> None:
        for attempt in (
            lambda: queue.finish(engine, stale, verification_of(comp=1)),
            lambda: queue.fail(engine, stale, "late"),
            lambda: queue.release(engine, stale),
            lambda: queue.renew(engine, stale),
        ):
            with pytest.raises(LeaseLostError, match="the computation is discarded"):
                attempt()

    try_everything()
    assert job_of(engine, sent).state == "running"
    queue.finish(engine, fresh, verification_of(comp=5000))
    try_everything()
    with reading(engine) as session:
        result = session.scalars(select(Result)).one()
        assert result.runs[0].comp == 20 * 5007
        assert count(engine, ResultRun) == 3


def test_jobs_of_a_disabled_account_fail(engine):
    running, waiting = send(engine, 2)
    lease = queue.claim(engine, "w")
    with writing(engine) as session:
        session.execute(update(Account).values(disabled_at=now(session)))
    with pytest.raises(LeaseLostError, match=queue.DISABLED):
        queue.renew(engine, lease)
    assert queue.claim(engine, "other") is None
    for sent in (running, waiting):
        job = job_of(engine, sent)
        assert (job.state, job.last_error) == ("failed", queue.DISABLED)
        assert f"{queue.DISABLED}; a maintainer can enable the account" in details(engine, sent).reason
        assert state_of(engine, sent) == "failed"


def test_a_worker_can_finish_after_its_lease_if_no_other_worker_claimed_the_job(engine):
    (sent,) = send(engine)
    slow = queue.claim(engine, "w")
    end_leases_and_pauses(engine)
    queue.finish(engine, slow, verification_of())
    assert state_of(engine, sent) == "verified"


def test_concurrent_finishes_write_one_result(engine):
    send(engine)
    lease = queue.claim(engine, "w")

    def finish(comp: int) -> str:
        try:
            queue.finish(engine, lease, verification_of(comp=comp))
            return "finished"
        except LeaseLostError:
            return "rejected"

    assert sorted(at_once(finish, 0, 1, 2, 3)) == ["finished", "rejected", "rejected", "rejected"]
    assert (count(engine, Result), count(engine, ResultRun)) == (1, 3)


def test_the_table_refuses_a_second_result(engine):
    """The job is queued although its submission has a result, as after an incomplete restore of a database."""
    (sent,) = send(engine)
    queue.finish(engine, queue.claim(engine, "w"), verification_of())
    with writing(engine) as session:
        session.execute(update(Job).values(state="queued"))
    with pytest.raises(LeaseLostError, match="has a result"):
        queue.finish(engine, queue.claim(engine, "w"), verification_of(comp=9))
    assert (count(engine, Result), count(engine, ResultRun), count(engine, AuditFinding)) == (1, 3, 0)
    assert job_of(engine, sent).state == "running"


def test_failed_attempts_are_repeated_after_longer_pauses_up_to_the_maximum(engine):
    (sent,) = send(engine)
    pauses = []
    for attempt in (1, 2, 3):
        lease = queue.claim(engine, "w")
        assert lease.attempt == attempt
        queue.fail(engine, lease, f"error {attempt} \0", backoff_seconds=30)
        job = job_of(engine, sent)
        if attempt < 3:
            assert job.state == "queued"
            with reading(engine) as session:
                pauses.append((job.available_at - now(session)).total_seconds())
            assert queue.claim(engine, "w") is None
            end_leases_and_pauses(engine)
    assert 25 < pauses[0] <= 30
    assert 55 < pauses[1] <= 60
    assert (job.state, state_of(engine, sent)) == ("failed", "failed")
    assert job.last_error == "error 3 \ufffd"
    assert queue.claim(engine, "w") is None


def test_a_failure_without_retry_is_final(engine):
    (sent,) = send(engine)
    queue.fail(engine, queue.claim(engine, "w"), "it cannot be run", retry=False)
    assert state_of(engine, sent) == "failed"


def test_a_job_that_kills_every_worker_is_held_and_other_jobs_run(engine):
    poison, other = send(engine, 2)
    starts = 0
    while (job := job_of(engine, poison)).state != "held":
        with writing(engine) as session:  # keeps the other job from its turn
            tomorrow = now(session) + timedelta(days=1)
            session.execute(update(Job).where(Job.submission_id == other).values(available_at=tomorrow))
        lease = queue.claim(engine, "dies")
        assert lease is None or lease.submission_id == poison
        starts += lease is not None
        end_leases_and_pauses(engine)
    assert starts == jobs.MAXIMUM_INTERRUPTIONS
    end_leases_and_pauses(engine)
    assert queue.claim(engine, "w").submission_id == other
    assert (job.state, job.attempts, state_of(engine, poison)) == ("held", 0, "held")
    assert "worker dies was killed or disconnected" in job.last_error
    queue.retry(engine, poison)
    assert queue.claim(engine, "w").attempt == 1


def test_a_released_job_can_be_claimed_at_once_and_its_attempt_does_not_count(engine):
    (sent,) = send(engine)
    for _ in range(5):
        lease = queue.claim(engine, "w")
        assert lease.attempt == 1
        queue.release(engine, lease)
        assert state_of(engine, sent) == "queued"


def test_only_failed_jobs_can_be_retried(engine):
    (sent,) = send(engine)
    with pytest.raises(NotFoundError, match="its job is queued; only a failed verification"):
        queue.retry(engine, sent)
    queue.fail(engine, queue.claim(engine, "w"), "the disk was full", retry=False)
    queue.retry(engine, sent)
    assert state_of(engine, sent) == "queued"
    assert queue.claim(engine, "w").attempt == 1
    with pytest.raises(NotFoundError, match="submission 99: it does not exist"):
        queue.retry(engine, 99)


def test_findings_have_one_of_three_severities():
    with pytest.raises(ValueError, match="must be one of info, suspicious, fatal"):
        Finding("bad", "a", "b")
    assert Verification(()).worst == "info"
