"""The verification queue, in the database: every job is done at least once, and has exactly one result.

A worker claims a job for a time, its *lease*, and renews it while it works. A worker that is killed renews nothing, so
that its job can be claimed when the lease ends, by any worker on any machine. Each claim draws a new key, and only who
holds the key of the last claim may finish, fail or give back: a worker that was only slow finds its key outdated, and
what it computed is dropped. That a submission has one result is also a constraint of the table.

PostgreSQL hands different rows to workers that ask at once (``FOR UPDATE SKIP LOCKED``); SQLite lets one of them in at
a time (``BEGIN IMMEDIATE``). The state of the submission changes in the same transaction as that of its job.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, and_, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard import results
from leaderboard.database import Event, Job
from leaderboard.engine import now, writing
from leaderboard.errors import LeaseLostError, NotFoundError
from leaderboard.text_rules import storable
from leaderboard.verification import Verification

MAXIMUM_ATTEMPTS = 3
LEASE_SECONDS = 60.0
BACKOFF_SECONDS = 30.0  # before the second attempt; doubled before each further one
LONGEST_BACKOFF_SECONDS = 3600.0
DISABLED = "the account that sent it was disabled"


@dataclass(frozen=True)
class Lease:
    """A job that is a worker's for a time.

    Attributes:
        job_id: of the job.
        submission_id: what is to be verified.
        worker: who holds it.
        key: of this claim.
        until: when it ends, unless it is renewed.
        attempt: which try this is, from 1.
    """

    job_id: int
    submission_id: int
    worker: str
    key: str
    until: datetime
    attempt: int


def enqueue(session: Session, submission_id: int, *, maximum_attempts: int = MAXIMUM_ATTEMPTS) -> Job:
    """Add the job of a new submission, within the transaction that stores it."""
    if maximum_attempts < 1:
        raise ValueError(f"maximum_attempts={maximum_attempts}: a job is tried at least once; give 1 or more")
    job = Job(submission_id=submission_id, maximum_attempts=maximum_attempts, available_at=now(session))
    session.add(job)
    session.flush()
    return job


def claim(engine: Engine, worker: str, lease_seconds: float = LEASE_SECONDS) -> Lease | None:
    """Take the job that has waited longest, or one whose worker is gone; None where there is nothing to do."""
    with writing(engine) as session:
        while True:
            moment = now(session)
            job = session.scalars(
                select(Job)
                .where(
                    or_(
                        and_(Job.state == "queued", Job.available_at <= moment),
                        and_(Job.state == "running", Job.lease_until < moment),
                    )
                )
                .order_by(Job.available_at, Job.id)
                .limit(1)
                .with_for_update(skip_locked=True)
            ).first()
            if job is None:
                return None
            if job.submission.account.disabled_at is not None:
                _end(session, job, moment, DISABLED)
                session.flush()
                continue
            if job.state == "running":
                gone = f"worker {job.lease_owner} did not renew its lease on attempt {job.attempts}: killed, or cut off"
                _log(session, job, moment, "lease expired", gone)
                if job.attempts >= job.maximum_attempts:
                    _end(session, job, moment, gone)
                    session.flush()
                    continue
                job.last_error = gone
            job.state, job.attempts = "running", job.attempts + 1
            job.lease_owner, job.lease_key = storable(worker, 200), secrets.token_hex(16)
            job.lease_until = moment + timedelta(seconds=lease_seconds)
            job.progress = None
            job.submission.state = "running"
            _log(session, job, moment, "claimed", f"attempt {job.attempts}")
            return Lease(job.id, job.submission_id, job.lease_owner, job.lease_key, job.lease_until, job.attempts)


def renew(engine: Engine, lease: Lease, lease_seconds: float = LEASE_SECONDS, progress: str | None = None) -> None:
    """Hold a job for longer, from now on, and say how far it is.

    Raises:
        LeaseLostError: it is not this worker's any more, or its account was disabled, which ends it.
    """
    with writing(engine) as session:
        job = _held(session, lease)
        disabled = job.submission.account.disabled_at is not None
        if disabled:
            _end(session, job, now(session), DISABLED)
        else:
            job.lease_until = now(session) + timedelta(seconds=lease_seconds)
        if not disabled and progress is not None:
            job.progress = storable(progress, 200)
    if disabled:
        raise LeaseLostError(f"job {lease.job_id} of worker {lease.worker}: {DISABLED}; what was computed is dropped")


def finish(engine: Engine, lease: Lease, verification: Verification) -> int:
    """Write the result of a job, all of it or nothing, and return its id.

    Raises:
        LeaseLostError: the job is not this worker's any more; nothing was written.
        ValueError: the verification is not complete; nothing was written.
    """
    try:
        with writing(engine) as session:
            job = _held(session, lease)
            moment = now(session)
            result = results.record(session, job.submission, verification, lease.worker, moment)
            job.state, job.finished_at, job.last_error = "finished", moment, None
            _let_go(job)
            _log(session, job, moment, job.submission.state, "")
            return result.id
    except IntegrityError as error:
        raise LeaseLostError(f"job {lease.job_id}: its submission has a result already; this one is dropped") from error


def adopt(engine: Engine, submission_id: int, verification: Verification, worker: str, moment: datetime) -> bool:
    """Take a verification that was made elsewhere for the result of a job that nobody has begun.

    For the project's own baselines alone, whose results are shipped; see `leaderboard.baselines`.

    Args:
        engine: of the board's database.
        submission_id: what was verified.
        verification: its result.
        worker: which verified it.
        moment: when.

    Returns:
        False, and nothing is changed, where the job was begun or done already.

    Raises:
        ValueError: the verification is not complete; nothing was written.
    """
    with writing(engine) as session:
        job = session.scalars(select(Job).where(Job.submission_id == submission_id).with_for_update()).one()
        if job.state != "queued":
            return False
        results.record(session, job.submission, verification, worker, moment)
        job.state, job.finished_at = "finished", moment
        _log(session, job, now(session), job.submission.state, "a result that is shipped with alma-env")
        return True


def fail(
    engine: Engine, lease: Lease, error: str, *, retry: bool = True, backoff_seconds: float = BACKOFF_SECONDS
) -> bool:
    """Say that an attempt came to nothing. Whether there will be another one: later each time, up to a number.

    Args:
        engine: of the board's database.
        lease: the job.
        error: what happened, for maintainers.
        retry: False where another attempt would fail in the same way.
        backoff_seconds: pause before the second attempt.

    Raises:
        LeaseLostError: the job is not this worker's any more.
    """
    with writing(engine) as session:
        job = _held(session, lease)
        moment = now(session)
        error = storable(error, 4_000)
        _log(session, job, moment, "attempt failed", error)
        if not retry or job.attempts >= job.maximum_attempts:
            _end(session, job, moment, error)
            return False
        pause = min(LONGEST_BACKOFF_SECONDS, backoff_seconds * 2 ** (job.attempts - 1))
        job.state, job.last_error, job.available_at = "queued", error, moment + timedelta(seconds=pause)
        job.submission.state = "queued"
        _let_go(job)
        return True


def release(engine: Engine, lease: Lease) -> None:
    """Give a job back, undone and untried: the worker was asked to stop.

    Raises:
        LeaseLostError: the job is not this worker's any more.
    """
    with writing(engine) as session:
        job = _held(session, lease)
        moment = now(session)
        job.state, job.attempts, job.available_at = "queued", job.attempts - 1, moment
        job.submission.state = "queued"
        _log(session, job, moment, "given back", "the worker was stopped")
        _let_go(job)


def retry(engine: Engine, submission_id: int, *, account_id: int | None = None) -> None:
    """Queue a failed job anew, with all its attempts.

    Args:
        engine: of the board's database.
        submission_id: of the submission.
        account_id: of the maintainer who asks for it, for the log; None for the command line.

    Raises:
        NotFoundError: there is no failed job of this submission.
    """
    with writing(engine) as session:
        job = session.scalars(select(Job).where(Job.submission_id == submission_id).with_for_update()).first()
        if job is None or job.state != "failed":
            state = "there is none" if job is None else f"its job is {job.state}"
            raise NotFoundError(f"submission {submission_id}: {state}, and only what failed is tried again")
        moment = now(session)
        job.state, job.attempts, job.available_at, job.finished_at = "queued", 0, moment, None
        job.submission.state = "queued"
        _log(session, job, moment, "queued again", "", account_id)


def waiting(session: Session) -> int:
    """How many jobs are not done yet."""
    return len(session.scalars(select(Job.id).where(Job.state.in_(("queued", "running")))).all())


def _held(session: Session, lease: Lease) -> Job:
    job = session.get(Job, lease.job_id, with_for_update=True)
    if job is None or job.state != "running" or job.lease_key != lease.key:
        what = "there is none" if job is None else f"it is {job.state}"
        if job is not None and job.state == "running":
            what = f"its lease ended and {job.lease_owner} has it now"
        raise LeaseLostError(f"job {lease.job_id} of worker {lease.worker}: {what}; what was computed is dropped")
    return job


def _end(session: Session, job: Job, moment: datetime, error: str) -> None:
    job.state, job.finished_at, job.last_error = "failed", moment, error
    job.submission.state = "failed"
    _log(session, job, moment, "failed", f"after {job.attempts} of {job.maximum_attempts} attempts")
    _let_go(job)


def _let_go(job: Job) -> None:
    job.lease_owner = job.lease_key = job.lease_until = job.progress = None


def _log(session: Session, job: Job, moment: datetime, kind: str, text: str, account_id: int | None = None) -> None:
    about = {"submission_id": job.submission_id, "account_id": account_id, "worker": job.lease_owner}
    session.add(Event(at=moment, kind=kind, text=text, **about))
