"""The submissions that were sent last, whatever became of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Engine, func, select

from leaderboard.database import SUBMISSION_STATES, Account, Job, Submission
from leaderboard.engine import reading

LONGEST_PAGE = 200


@dataclass(frozen=True)
class Sent:
    """One submission in a list.

    Attributes:
        id: of the submission.
        name: of the submission.
        account: who sent it.
        env_id: of the environment.
        rules_version: under which it was sent.
        method: id of the method.
        waiting_time: in mega-batches, None where the manifest has none.
        state: queued, running, verified, flagged, rejected or failed.
        progress: how far the verification is, where it runs.
        created_at: when it was sent.
    """

    id: int
    name: str
    account: str
    env_id: str
    rules_version: str
    method: str
    waiting_time: int | None
    state: str
    progress: str | None
    created_at: datetime


def recent(
    engine: Engine,
    *,
    state: str | None = None,
    env_id: str | None = None,
    account_id: int | None = None,
    limit: int = 50,
    offset: int = 0,
) -> tuple[list[Sent], int]:
    """A page of the submissions, the last one first, and how many there are on all pages.

    Args:
        engine: of the board's database.
        state: in this state alone.
        env_id: for this environment alone.
        account_id: of this account alone.
        limit: lines of the page, at most 200.
        offset: lines before the page.

    Raises:
        ValueError: a state, limit or offset that there is not.
    """
    if state is not None and state not in SUBMISSION_STATES:
        raise ValueError(f"state={state!r}: must be one of {', '.join(SUBMISSION_STATES)}")
    if not 1 <= limit <= LONGEST_PAGE or not 0 <= offset < 2**31:
        raise ValueError(f"limit={limit}, offset={offset}: a page has 1 to {LONGEST_PAGE} lines, from line 0 on")
    chosen: list[ColumnElement[bool]] = [
        column == value
        for column, value in (
            (Submission.state, state),
            (Submission.env_id, env_id),
            (Submission.account_id, account_id),
        )
        if value is not None
    ]
    with reading(engine) as session:
        total = session.scalar(select(func.count()).select_from(Submission).where(*chosen)) or 0
        rows = session.execute(
            select(
                Submission.id,
                Submission.name,
                Account.name,
                Submission.env_id,
                Submission.rules_version,
                Submission.method,
                Submission.waiting_time,
                Submission.state,
                Job.progress,
                Submission.created_at,
            )
            .join(Account, Account.id == Submission.account_id)
            .outerjoin(Job, Job.submission_id == Submission.id)
            .where(*chosen)
            .order_by(Submission.id.desc())
            .limit(limit)
            .offset(offset)
        )
        return [Sent(*tuple(row)) for row in rows], total
