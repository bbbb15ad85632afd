"""What a maintainer decides about a result: a suspicious one is shown or rejected, a shown one is taken down."""

from __future__ import annotations

from sqlalchemy import Engine, select

from leaderboard.database import Account, Event, Result
from leaderboard.engine import now, writing
from leaderboard.errors import NotFoundError, SubmissionError
from leaderboard.rules import MINIMUM_SEEDS
from leaderboard.text_rules import shown, storable


def decide(engine: Engine, submission_id: int, maintainer: str, *, accept: bool, reason: str) -> None:
    """Put a result on the board, or take it off, and log who did so and why. The findings stay.

    Raises:
        NotFoundError: there is no such result, or no such maintainer.
        SubmissionError: the result cannot be shown, or no reason was given.
    """
    if not reason.strip():
        raise SubmissionError("reason='': a decision is logged with its reason; write one")
    with writing(engine) as session:
        account = session.scalars(select(Account).where(Account.name == maintainer)).first()
        if account is None or account.role != "maintainer" or account.disabled_at is not None:
            raise NotFoundError(f"maintainer {shown(maintainer)}: no such account; only a maintainer decides")
        result = session.scalars(select(Result).where(Result.submission_id == submission_id).with_for_update()).first()
        if result is None:
            raise NotFoundError(f"submission {submission_id}: has no result to decide about; wait for its verification")
        if accept and result.seeds < MINIMUM_SEEDS:
            raise SubmissionError(
                f"submission {submission_id}: {result.seeds} verified runs, a score needs {MINIMUM_SEEDS}; reject it"
            )
        result.published = accept
        result.submission.state = "verified" if accept else "rejected"
        session.add(
            Event(
                at=now(session),
                kind="accepted" if accept else "rejected",
                submission_id=submission_id,
                account_id=account.id,
                text=storable(reason.strip(), 4_000),
            )
        )
