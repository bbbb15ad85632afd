"""A submission enters the board: checked, stored, and queued, in one transaction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard import queue
from leaderboard.accounts import find_or_make_account
from leaderboard.archive import from_zip
from leaderboard.check import check
from leaderboard.database import Account, Event, Submission
from leaderboard.engine import now, writing
from leaderboard.errors import NotFoundError, SubmissionError, TooManyError
from leaderboard.package import Package
from leaderboard.rules import RULES_VERSION
from leaderboard.text_rules import shown

DAY = timedelta(hours=24)


@dataclass(frozen=True)
class Submitted:
    """What became of a package that was sent.

    Attributes:
        id: of the submission.
        state: of the submission.
        new: False where the same files had been sent before.
    """

    id: int
    state: str
    new: bool


def submit(
    engine: Engine,
    package: Package,
    account: str = "local",
    *,
    maximum_attempts: int = queue.MAXIMUM_ATTEMPTS,
    per_day: int | None = None,
) -> Submitted:
    """Check a package, store it and queue its verification. The same files sent again are the submission of before.

    Args:
        engine: of the board's database.
        package: the files.
        account: name of who sends them; made where there is none.
        maximum_attempts: how often the verification is tried.
        per_day: new submissions that an account may send in 24 hours; None for any number.

    Raises:
        SubmissionError: the check found errors; all of them are told.
        TooManyError: the account sent as many as it may.
    """
    report = check(package)
    if not report.ok:
        raise SubmissionError(report.errors)
    manifest = report.manifest
    assert manifest is not None
    for last in (False, True):
        try:
            with writing(engine) as session:
                known = _known(session, package)
                if known is not None:
                    return Submitted(known.id, known.state, new=False)
                sender = find_or_make_account(session, account)
                archive = package.to_zip()
                moment = now(session)
                if per_day is not None:
                    _require_room(session, sender, moment, per_day)
                submission = Submission(
                    account_id=sender.id,
                    digest=package.digest,
                    rules_version=RULES_VERSION,
                    env_id=manifest.env,
                    name=manifest.name,
                    method=manifest.method,
                    waiting_time=manifest.waiting_time,
                    manifest=manifest.to_dict(),
                    package=archive,
                    package_bytes=len(archive),
                    created_at=moment,
                )
                session.add(submission)
                session.flush()
                queue.enqueue(session, submission.id, maximum_attempts=maximum_attempts)
                session.add(Event(at=moment, kind="submitted", submission_id=submission.id, account_id=sender.id))
                return Submitted(submission.id, "queued", new=True)
        except IntegrityError:
            # Another process sent the same files, or made the account, between the look and the write.
            if last:
                raise
    raise AssertionError("unreachable")


def _known(session: Session, package: Package) -> Submission | None:
    return session.scalars(
        select(Submission).where(Submission.digest == package.digest, Submission.rules_version == RULES_VERSION)
    ).first()


def _require_room(session: Session, account: Account, moment: datetime, per_day: int) -> None:
    # Locked, so that two at once do not both find room for one more.
    session.refresh(account, with_for_update=True)
    newest = session.scalars(
        select(Submission.created_at)
        .where(Submission.account_id == account.id, Submission.created_at > moment - DAY)
        .order_by(Submission.created_at.desc())
        .limit(per_day)
    ).all()
    if len(newest) >= per_day:
        seconds = (newest[-1] + DAY - moment).total_seconds()
        raise TooManyError(
            f"account {shown(account.name)}: sent {per_day} submissions in 24 hours, which is what the board takes; "
            f"send the next in {math.ceil(seconds / 60)} minutes",
            seconds,
        )


def package_of(session: Session, submission_id: int) -> Package:
    """The files of a submission.

    Raises:
        NotFoundError: there is no such submission.
    """
    archive = session.scalars(select(Submission.package).where(Submission.id == submission_id)).first()
    if archive is None:
        raise no_submission(submission_id)
    return from_zip(archive)


def no_submission(submission_id: int) -> NotFoundError:
    """The error of an id that nothing has."""
    return NotFoundError(f"submission {submission_id}: there is none of this number; `status` lists them")
