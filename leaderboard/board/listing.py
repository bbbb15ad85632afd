"""The list of submissions, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import NonNegativeInt
from sqlalchemy import Engine, func, select

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
    """

    lines: tuple[ListedSubmission, ...]
    total: NonNegativeInt


def list_submissions(
    engine: Engine,
    *,
    state: str | None = None,
    env_id: str | None = None,
    account_id: int | None = None,
    limit: int = 50,
    offset: int = 0,
) -> SubmissionsPage:
    """Return a page of the submissions, the newest first: of all, or of one state, environment and account.

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
            .where(*conditions)
            .order_by(Submission.id.desc())
            .limit(limit)
            .offset(offset)
        )
        return SubmissionsPage(tuple(ListedSubmission(*tuple(row)) for row in rows), total)
