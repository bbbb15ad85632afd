"""The list of submissions, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pydantic import NonNegativeInt, TypeAdapter
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from leaderboard.database.damage import each_readable
from leaderboard.database.engine import reading
from leaderboard.database.tables import SUBMISSION_STATES, Account, Job, State, Submission
from leaderboard.text_safety import printable

LONGEST_PAGE = 200


@dataclass(frozen=True)
class ListedSubmission:
    """A submission in a list.

    Attributes:
        id: number of the submission.
        name: name of the submission.
        account: name of the account that sent it.
        env_id: id of the environment.
        rules_version: version of the rules at the time of sending.
        method: id of the method.
        waiting_time: in mega-batches; None if the manifest has none.
        state: queued, running, verified, flagged, rejected, failed or held.
        progress: progress of the verification; None if it does not run.
        created_at: time of sending.
    """

    id: int
    name: str
    account: str
    env_id: str
    rules_version: str
    method: str
    waiting_time: int | None
    state: State
    progress: str | None
    created_at: datetime

    def columns(self) -> tuple[str, ...]:
        """The submission as a row of a table in a terminal: id, state, environment, name, method, time, progress."""
        time = f"{self.created_at:%Y-%m-%d %H:%M}"
        texts = (str(self.id), self.state, self.env_id, self.name, self.method, time, self.progress or "")
        return tuple(map(printable, texts))


@dataclass(frozen=True)
class SubmissionsPage:
    """A page of the list of submissions, the newest first.

    Attributes:
        lines: submissions of this page.
        total: number of submissions on all pages.
        damaged: numbers of the submissions of this page whose rows in the database cannot be read.
    """

    lines: tuple[ListedSubmission, ...]
    total: NonNegativeInt
    damaged: tuple[int, ...] = ()


_LINES = TypeAdapter(list[ListedSubmission])
_COLUMNS = {
    "id": Submission.id,
    "name": Submission.name,
    "account": Account.name,
    "env_id": Submission.env_id,
    "rules_version": Submission.rules_version,
    "method": Submission.method,
    "waiting_time": Submission.waiting_time,
    "state": Submission.state,
    "progress": Job.progress,
    "created_at": Submission.created_at,
}


def list_submissions(
    engine: Engine,
    *,
    state: str | None = None,
    env_id: str | None = None,
    account_id: int | None = None,
    limit: int = 50,
    offset: int = 0,
    oldest_first: bool = False,
) -> SubmissionsPage:
    """Return a page of the submissions, the newest first: of all, or of one state, environment and account.

    ``oldest_first`` turns the order round.

    Raises:
        ValueError: the state, the limit (1 to 200 lines) or the offset is invalid.
    """
    if state is not None and state not in SUBMISSION_STATES:
        raise ValueError(f"state={state!r}: must be one of {', '.join(SUBMISSION_STATES)}")
    if not 1 <= limit <= LONGEST_PAGE or not 0 <= offset < 2**31:
        raise ValueError(
            f"limit={limit}, offset={offset}: the limit must be 1 to {LONGEST_PAGE}, and the offset at least 0; "
            "request further pages by their offset"
        )
    filters = {"state": state, "env_id": env_id, "account_id": account_id}
    conditions = [getattr(Submission, name) == value for name, value in filters.items() if value is not None]
    with reading(engine) as session:
        total = session.scalar(select(func.count()).select_from(Submission).where(*conditions)) or 0
        order = Submission.id if oldest_first else Submission.id.desc()
        ids = session.scalars(
            select(Submission.id).where(*conditions).order_by(order).limit(limit).offset(offset)
        ).all()
        lines, damaged = each_readable(ids, partial(_read, session))
    lines.sort(key=lambda line: line.id, reverse=not oldest_first)
    return SubmissionsPage(tuple(lines), total, damaged)


def _read(session: Session, ids: Sequence[int]) -> list[ListedSubmission]:
    rows = session.execute(
        select(*_COLUMNS.values())
        .select_from(Submission)
        .outerjoin(Account, Account.id == Submission.account_id)
        .outerjoin(Job, Job.submission_id == Submission.id)
        .where(Submission.id.in_(ids))
    )
    return _LINES.validate_python([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
