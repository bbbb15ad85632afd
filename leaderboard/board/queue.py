"""The verification queue in the database. Every job runs at least once and has exactly one result.

The turns are fair: the next job is of the client address whose last turn is the longest ago, then of the account, then
the oldest. Many submissions of one account, or many accounts of one address, do not delay the others.

A worker claims a job for a limited time, its *lease*, and renews the lease while it works. A worker that is killed does
not renew, so any worker on any machine can claim the job when the lease ends. Each claim has a new random key, and only
the key of the last claim can finish, fail or release the job. The result of a worker that was too slow is therefore
discarded. A constraint of the table also limits a submission to one result. The result of a run that failed can be
verified again: it stays until the new result replaces it.

A start that ends without a verdict, because the worker was killed or its machine could not run it, is an
*interruption*. It is not an attempt of the submission. But a submission may be what kills the workers, so the pauses
between its starts grow, and after some interruptions the job is *held* until a maintainer queues it again.

Concurrent claims: PostgreSQL gives each worker a different row (``FOR UPDATE SKIP LOCKED``), and SQLite runs one claim
at a time (``BEGIN IMMEDIATE``). The state of a submission changes in the same transaction as the state of its job.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, and_, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard.accounts import accounts
from leaderboard.board import jobs, results, turns
from leaderboard.board.jobs import LONGEST_BACKOFF_SECONDS, MAXIMUM_ATTEMPTS
from leaderboard.database.damage import UNREADABLE
from leaderboard.database.engine import now, writing
from leaderboard.database.tables import WAITING, Job
from leaderboard.errors import LeaseLostError, NotFoundError
from leaderboard.text_safety import storable
from leaderboard.verification.result import FAILED, Verification

LEASE_SECONDS = 60.0
BACKOFF_SECONDS = 30.0  # before the second attempt; doubled before each later attempt
FIRST_INTERRUPTION_SECONDS = 5.0  # pause after the second interruption; doubled after each later one
DISABLED = "the account that sent the submission is disabled"
_ENABLE = f"{DISABLED}; a maintainer can enable the account and queue it again"


@dataclass(frozen=True)
class Lease:
    """A job that a worker has claimed."""

    job_id: int
    submission_id: int
    worker: str
    key: str  # random, of this claim
    attempt: int  # number of the start, from 1; interrupted starts count


def enqueue(session: Session, submission_id: int, *, network: str | None = None) -> None:
    """Add the job of a new submission, in the transaction that stores the submission.

    ``network`` is the client address of the sender; None if the sender has none.
    """
    job = Job(
        submission_id=submission_id, maximum_attempts=MAXIMUM_ATTEMPTS, available_at=now(session), network=network
    )
    session.add(job)


def claim(engine: Engine, worker: str, lease_seconds: float = LEASE_SECONDS) -> Lease | None:
    """Claim the job whose turn it is, or a job whose lease has ended. Return None if there is no such job."""
    with writing(engine) as session:
        moment = now(session)
        # Workers ask all the time. Registrations and submissions, which forget addresses, too, may be rare.
        accounts.forget_addresses(session, moment)
        turns.forget_addresses(session, moment)
        while True:
            moment = now(session)
            id = session.scalars(
                turns.in_order(
                    select(Job.id).where(
                        or_(
                            and_(Job.state == "queued", Job.available_at <= moment),
                            and_(Job.state == "running", Job.lease_until < moment),
                        )
                    )
                )
                .limit(1)
                .with_for_update(skip_locked=True, of=Job)
            ).first()
            if id is None:
                return None
            try:
                job = session.get_one(Job, id)
                jobs.require_whole(job)
                disabled = jobs.is_disabled(session, job)
            except UNREADABLE as error:  # a damaged row must not stop the others
                jobs.hold_damaged(session, id, moment, error)
                continue
            if disabled:
                jobs.end(session, job, moment, DISABLED, _ENABLE)
                continue
            if job.state == "running":
                gone = f"start {jobs.starts(job)}: worker {job.lease_owner} was killed or disconnected"
                jobs.log(session, job, moment, "lease expired", gone)
                jobs.interrupt(session, job, moment, gone, FIRST_INTERRUPTION_SECONDS)
                if job.state == "held" or job.available_at > moment:
                    session.flush()
                    continue
            job.state, job.attempts = "running", job.attempts + 1
            job.lease_owner, job.lease_key = storable(worker, 200), secrets.token_hex(16)
            job.lease_until = moment + timedelta(seconds=lease_seconds)
            job.claimed_at, job.progress = moment, None
            jobs.set_submission(session, job.submission_id, "running")
            jobs.log(session, job, moment, "claimed", f"start {jobs.starts(job)}")
            return Lease(job.id, job.submission_id, job.lease_owner, job.lease_key, jobs.starts(job))


def renew(engine: Engine, lease: Lease, lease_seconds: float = LEASE_SECONDS, progress: str | None = None) -> None:
    """Renew a lease from now on, and store the progress of the job.

    Raises:
        LeaseLostError: the worker does not hold the job, or the account is disabled, which ends the job.
    """
    with writing(engine) as session:
        job = jobs.held(session, lease.job_id, lease.key, lease.worker)
        disabled = jobs.is_disabled(session, job)
        if disabled:
            jobs.end(session, job, now(session), DISABLED, _ENABLE)
        else:
            job.lease_until = now(session) + timedelta(seconds=lease_seconds)
            if progress is not None:
                job.progress = storable(progress, 200)
    if disabled:  # raised after the transaction, which has ended the job
        raise LeaseLostError(f"job {lease.job_id} of worker {lease.worker}: {DISABLED}; the computation is discarded")


def finish(engine: Engine, lease: Lease, verification: Verification) -> None:
    """Write the result of a job in one transaction.

    Raises:
        LeaseLostError: the worker does not hold the job; nothing was written.
        ValueError: the verification is not complete; nothing was written.
    """
    try:
        with writing(engine) as session:
            job = jobs.held(session, lease.job_id, lease.key, lease.worker)
            moment = now(session)
            results.remove_failed(session, job.submission_id)
            results.record(session, job.submission, verification, lease.worker, moment)
            job.state, job.finished_at, job.last_error = "finished", moment, None
            jobs.log(session, job, moment, job.submission.state, "")
            jobs.clear_lease(job)
    except IntegrityError as error:
        raise LeaseLostError(f"job {lease.job_id}: its submission has a result; this one is discarded") from error


def adopt(engine: Engine, submission_id: int, verification: Verification, worker: str, moment: datetime) -> bool:
    """Write a verification that ``worker`` did elsewhere at ``moment`` as the result of a job.

    Return False, and change nothing, if a worker has claimed the job. Only the project's own baselines use
    this, because their results are shipped; see `leaderboard.board.baselines`.
    """
    with writing(engine) as session:
        job = session.scalars(select(Job).where(Job.submission_id == submission_id).with_for_update()).one()
        if job.state != "queued" or job.claimed_at is not None:
            return False
        results.record(session, job.submission, verification, worker, moment)
        job.state, job.finished_at = "finished", moment
        jobs.log(session, job, now(session), job.submission.state, "the result is shipped with alma-env")
        return True


def fail(
    engine: Engine,
    lease: Lease,
    error: str,
    *,
    retry: bool = True,
    public: bool = False,
    backoff_seconds: float = BACKOFF_SECONDS,
) -> None:
    """Record that an attempt failed. The job is queued again unless it was the last attempt.

    Args:
        engine: engine of the board's database.
        lease: lease of the job.
        error: the error, for maintainers.
        retry: False if another attempt would fail in the same way.
        public: whether everyone can read the error if it ends the job, because it is about the submission only.
        backoff_seconds: pause before the second attempt; doubled before each later one.

    Raises:
        LeaseLostError: the worker does not hold the job.
    """
    with writing(engine) as session:
        job = jobs.held(session, lease.job_id, lease.key, lease.worker)
        moment = now(session)
        error = storable(error, 4_000)
        jobs.log(session, job, moment, "attempt failed", error)
        if not retry or job.attempts >= job.maximum_attempts:
            jobs.end(session, job, moment, error, error if public else None)
            return
        pause = min(LONGEST_BACKOFF_SECONDS, backoff_seconds * 2 ** (job.attempts - 1))
        job.last_error = error
        jobs.requeue(session, job, moment + timedelta(seconds=pause))


def release(engine: Engine, lease: Lease) -> None:
    """Return a job to the queue because the worker stops. The attempt does not count.

    Raises:
        LeaseLostError: the worker does not hold the job.
    """
    with writing(engine) as session:
        job = jobs.held(session, lease.job_id, lease.key, lease.worker)
        moment = now(session)
        job.attempts -= 1
        jobs.log(session, job, moment, "given back", "the worker was stopped")
        jobs.requeue(session, job, moment)


def interrupt(engine: Engine, lease: Lease, reason: str, *, pause_seconds: float = BACKOFF_SECONDS) -> None:
    """Return a job to the queue because the worker's machine cannot run it now. The attempt does not count.

    Args:
        engine: engine of the board's database.
        lease: lease of the job.
        reason: what happened, for maintainers.
        pause_seconds: half of the pause after the second interruption; doubled after each later one.

    Raises:
        LeaseLostError: the worker does not hold the job.
    """
    with writing(engine) as session:
        job = jobs.held(session, lease.job_id, lease.key, lease.worker)
        moment = now(session)
        reason = storable(reason, 4_000)
        jobs.log(session, job, moment, "interrupted", reason)
        jobs.interrupt(session, job, moment, reason, 2 * pause_seconds)


def hold(engine: Engine, lease: Lease, kind: str, reason: str) -> None:
    """End a job until a maintainer queues it again, because of what the board has stored. No attempt counts.

    Args:
        engine: engine of the board's database.
        lease: lease of the job.
        kind: kind of the event, such as ``damaged``.
        reason: what is wrong; everyone can read it.

    Raises:
        LeaseLostError: the worker does not hold the job.
    """
    with writing(engine) as session:
        job = jobs.held(session, lease.job_id, lease.key, lease.worker)
        moment = now(session)
        job.attempts -= 1
        reason = storable(reason, 4_000)
        jobs.log(session, job, moment, kind, reason)
        jobs.stop(session, job, "held", moment, reason)


def retry(engine: Engine, submission_id: int, *, account_id: int | None = None) -> None:
    """Queue a failed or held job again, or one whose result has a failed run, with all its attempts.

    An earlier result stays until the new one replaces it. The log names the maintainer's account, if there is one.

    Raises:
        NotFoundError: the submission has no such job.
    """
    with writing(engine) as session:
        # Only its state is read: the rest of its row may be damaged, and is written anew.
        found = select(Job.state).where(Job.submission_id == submission_id).with_for_update()
        state = session.scalars(found).first()
        if state not in ("failed", "held") and not (state == "finished" and results.has_failed(session, submission_id)):
            why = "it does not exist" if state is None else f"its job is {state}"
            if state == "finished":
                why += f" and its result has no finding {FAILED}"
            raise NotFoundError(f"submission {submission_id}: {why}; only a failed verification can be retried")
        jobs.restart(session, submission_id, now(session), account_id)


def waiting(session: Session) -> int:
    """Return the number of jobs that are queued or running."""
    return session.scalar(select(func.count()).where(Job.state.in_(WAITING))) or 0
