"""Submit a package: check it, store it and queue its verification in one transaction."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard.accounts.accounts import find_or_make_account
from leaderboard.accounts.names import LOCAL_ACCOUNT
from leaderboard.board import queue, turns
from leaderboard.database.engine import now, writing
from leaderboard.database.tables import Account, Event, State, Submission
from leaderboard.errors import DamagedError, NotFoundError, SubmissionError, TooManyError
from leaderboard.rules import RULES_VERSION
from leaderboard.submission.manifest import Manifest
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import MANIFEST, check
from leaderboard.submission.zip_archive import from_zip
from leaderboard.text_safety import shown

DAY = timedelta(hours=24)


@dataclass(frozen=True)
class Submitted:
    """The submission of a package.

    Attributes:
        id: number of the submission.
        state: state of the submission.
        new: False if the same files were sent before.
        digest: SHA-256 of the files.
    """

    id: int
    state: State
    new: bool
    digest: str


def submit(
    engine: Engine,
    package: Package,
    account: str = LOCAL_ACCOUNT,
    *,
    per_day: int | None = None,
    waiting_per_account: int | None = None,
    waiting_per_network: int | None = None,
    network: str | None = None,
) -> Submitted:
    """Check a package, store it and queue its verification. Files that were sent before are not stored again.

    Args:
        engine: engine of the board's database.
        package: the files.
        account: name of the sender's account; it is created if it does not exist.
        per_day: maximum number of new submissions of an account in 24 hours; None for no limit.
        waiting_per_account: maximum number of submissions of an account in the queue; None for no limit.
        waiting_per_network: maximum number of submissions of a client address in the queue; None for no limit.
        network: client address of the sender; None if the sender has none.

    Raises:
        SubmissionError: the check found errors; the exception lists all of them.
        TooManyError: the account or the client address has reached a limit.
    """
    report = check(package)
    if not report.ok:
        raise SubmissionError(report.errors)
    manifest = report.manifest
    assert manifest is not None
    for last in (False, True):
        try:
            with writing(engine) as session:
                same = Submission.digest == package.digest, Submission.rules_version == RULES_VERSION
                known = session.scalars(select(Submission).where(*same)).first()
                if known is not None:
                    return Submitted(known.id, known.state, new=False, digest=package.digest)
                sender = find_or_make_account(session, account)
                archive = package.to_zip()
                moment = now(session)
                if per_day is not None:
                    _require_below_limit(session, sender, moment, per_day)
                most = {"per_account": waiting_per_account, "per_network": waiting_per_network}
                turns.require_room(session, sender, network, moment, **most)
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
                queue.enqueue(session, submission.id, network=network)
                session.add(Event(at=moment, kind="submitted", submission_id=submission.id, account_id=sender.id))
                return Submitted(submission.id, "queued", new=True, digest=package.digest)
        except IntegrityError:
            # Another process sent the same files or created the account between the query and the write.
            if last:
                raise
    raise AssertionError("unreachable")


def _require_below_limit(session: Session, account: Account, moment: datetime, per_day: int) -> None:
    # The lock prevents that two concurrent submissions both pass the limit.
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
            f"account {shown(account.name)}: sent {per_day} submissions in 24 hours, the limit of the board; "
            f"send the next one in {math.ceil(seconds / 60)} minutes",
            seconds,
        )


def package_of(session: Session, submission_id: int) -> Package:
    """Return the files of a submission. They are the files that were sent: their digest is the submission's.

    Raises:
        NotFoundError: there is no such submission.
        DamagedError: the stored files are not those that were sent.
    """
    chosen = select(Submission.package, Submission.digest).where(Submission.id == submission_id)
    row = session.execute(chosen).first()
    if row is None:
        raise no_submission(submission_id)
    archive, digest = row
    try:
        package = from_zip(archive)
    except (SubmissionError, TypeError) as error:
        raise DamagedError(f"submission {submission_id}: its stored files cannot be read ({error})") from error
    if package.digest != digest:
        raise DamagedError(
            f"submission {submission_id}: its stored files have the digest {package.digest}, the files that were sent "
            f"have {shown(digest, 80)}"
        )
    return package


def require_described(session: Session, submission_id: int, manifest: Manifest) -> None:
    """Require that the row of a submission says what the manifest among its files says.

    Raises:
        DamagedError: the row says something else.
    """
    columns = Submission.manifest, Submission.env_id, Submission.name, Submission.method, Submission.waiting_time
    row = session.execute(select(*columns).where(Submission.id == submission_id)).one()
    values = json.loads(json.dumps(manifest.to_dict()))
    if tuple(row) != (values, manifest.env, manifest.name, manifest.method, manifest.waiting_time):
        raise DamagedError(f"submission {submission_id}: its row does not say what {MANIFEST} among its files says")


def no_submission(submission_id: int) -> NotFoundError:
    """Return the error for a submission that does not exist."""
    return NotFoundError(f"submission {submission_id}: it does not exist; see the list of submissions")
