"""The states of a job in the queue, and the rows that a change of state writes. `leaderboard.board.queue` uses them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from leaderboard.database.tables import Account, Event, Job, State, Submission
from leaderboard.errors import LeaseLostError

MAXIMUM_ATTEMPTS = 3
MAXIMUM_INTERRUPTIONS = 8
LONGEST_BACKOFF_SECONDS = 3600.0
# What a job has after its row was found damaged; a maintainer can queue it again.
_WHOLE = {"state": "held", "attempts": 0, "interruptions": 0, "maximum_attempts": MAXIMUM_ATTEMPTS} | dict.fromkeys(
    ("lease_owner", "lease_key", "lease_until", "progress", "claimed_at", "finished_at", "network")
)


def held(session: Session, job_id: int, key: str, worker: str) -> Job:
    """Return the job of a lease, or raise LeaseLostError if the worker does not hold it."""
    job = session.get(Job, job_id, with_for_update=True)
    if job is None or job.state != "running" or job.lease_key != key:
        what = "the job does not exist" if job is None else f"the job is {job.state}"
        if job is not None and job.state == "running":
            what = f"its lease ended and {job.lease_owner} has claimed it"
        raise LeaseLostError(f"job {job_id} of worker {worker}: {what}; the computation is discarded")
    return job


def set_submission(session: Session, submission_id: int, state: State) -> None:
    """Set the state of a submission without reading the submission, which may be damaged."""
    session.execute(update(Submission).where(Submission.id == submission_id).values(state=state))


def is_disabled(session: Session, job: Job) -> bool:
    """Return whether the account that sent the submission of a job is disabled."""
    account = select(Account.disabled_at).join(Submission, Submission.account_id == Account.id)
    return session.scalars(account.where(Submission.id == job.submission_id)).first() is not None


def require_whole(job: Job) -> None:
    """Raise TypeError or ValueError if a row has what this program never writes."""
    for number in (job.attempts, job.interruptions, job.maximum_attempts):
        if not isinstance(number, int) or not 0 <= number < 2**31:
            raise TypeError(f"{number!r}: not a number of attempts")


def hold_damaged(session: Session, job_id: int, moment: datetime, error: BaseException) -> None:
    """Hold a job whose row cannot be read, so that the other jobs go on."""
    text = f"the row of its job is damaged in the database ({type(error).__name__})"
    whole = {"last_error": text, "available_at": moment}
    row = select(Job.submission_id).where(Job.id == job_id)
    submission_id = session.scalars(row).one()
    session.execute(update(Job).where(Job.id == job_id).values(_WHOLE | whole))
    set_submission(session, submission_id, "held")
    session.add(Event(at=moment, kind="damaged", submission_id=submission_id, text=text))
    session.flush()


def starts(job: Job) -> int:
    """Return the number of starts of a job."""
    return job.attempts + job.interruptions


def end(session: Session, job: Job, moment: datetime, error: str, reason: str | None = None) -> None:
    """End a job as failed. Only maintainers can read ``error``, and everyone ``reason``; None if the worker failed."""
    why = reason or "the worker failed; a maintainer can queue it again, so you need not send it again"
    log(session, job, moment, "failed", f"after {job.attempts} of {job.maximum_attempts} attempts: {why}")
    stop(session, job, "failed", moment, error)
    session.flush()


def interrupt(session: Session, job: Job, moment: datetime, reason: str, pause_seconds: float) -> None:
    """Queue an interrupted job again, or hold it. The pause begins with the second interruption."""
    job.attempts, job.interruptions, job.last_error = job.attempts - 1, job.interruptions + 1, reason
    if job.interruptions < MAXIMUM_INTERRUPTIONS:
        pause = 0.0 if job.interruptions == 1 else pause_seconds * 2 ** (job.interruptions - 2)
        requeue(session, job, moment + timedelta(seconds=min(LONGEST_BACKOFF_SECONDS, pause)))
        return
    text = f"{job.interruptions} starts ended without a verdict; a maintainer will find out why"
    log(session, job, moment, "held", text)
    stop(session, job, "held", moment, reason)


def stop(session: Session, job: Job, state: Literal["failed", "held"], moment: datetime, error: str) -> None:
    """End a job in a state that only a maintainer changes."""
    job.state = state
    set_submission(session, job.submission_id, state)
    job.finished_at, job.last_error = moment, error
    clear_lease(job)


def requeue(session: Session, job: Job, available_at: datetime) -> None:
    """Queue a job again."""
    job.state = "queued"
    set_submission(session, job.submission_id, "queued")
    job.available_at = available_at
    clear_lease(job)


def restart(session: Session, submission_id: int, moment: datetime, account_id: int | None) -> None:
    """Queue a job again with all its attempts, without reading its row, which may be damaged."""
    nothing = dict.fromkeys(("lease_owner", "lease_key", "lease_until", "progress", "finished_at"))
    values = {"state": "queued", "attempts": 0, "interruptions": 0, "available_at": moment} | nothing
    session.execute(update(Job).where(Job.submission_id == submission_id).values(values))
    set_submission(session, submission_id, "queued")
    session.add(Event(at=moment, kind="queued again", submission_id=submission_id, account_id=account_id))


def clear_lease(job: Job) -> None:
    """Remove what belongs to one start."""
    job.lease_owner = job.lease_key = job.lease_until = job.progress = None


def log(session: Session, job: Job, moment: datetime, kind: str, text: str) -> None:
    """Add an event of a job to the audit log."""
    session.add(Event(at=moment, kind=kind, text=text, submission_id=job.submission_id, worker=job.lease_owner))
