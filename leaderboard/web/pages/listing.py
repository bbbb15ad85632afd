"""Submissions as they came in, whatever became of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, select

from leaderboard.database import SUBMISSION_STATES, Job, Submission
from leaderboard.engine import reading

# What each state means, for people.
STATES: dict[str, str] = {
    "queued": "waits for a worker",
    "running": "is being run again",
    "verified": "was run again; its numbers are on the board",
    "flagged": "was run again; a maintainer looks at what the audit noticed",
    "rejected": "is not shown on the board; its page says why",
    "failed": "could not be run; a maintainer has been told why",
}
assert set(STATES) == set(SUBMISSION_STATES)


@dataclass(frozen=True)
class Listed:
    """A line of the list.

    Attributes:
        id: of the submission.
        name: of the submission.
        authors: names.
        env_id: of the environment.
        rules_version: under which it was sent.
        method: id of the method.
        state: one of ``STATES``.
        progress: of its verification, where that runs.
        created_at: when it was sent.
    """

    id: int
    name: str
    authors: tuple[str, ...]
    env_id: str
    rules_version: str
    method: str
    state: str
    progress: str | None
    created_at: datetime


@dataclass(frozen=True)
class Listing:
    """A page of the list, latest first.

    Attributes:
        lines: of the page.
        total: how many there are on all pages.
        by_state: how many there are in each state that any has.
    """

    lines: tuple[Listed, ...]
    total: int
    by_state: dict[str, int]


def listing(engine: Engine, *, state: str | None = None, limit: int = 50, offset: int = 0) -> Listing:
    """The submissions that were sent last, of one state or of all."""
    with reading(engine) as session:
        counted = session.execute(select(Submission.state, func.count()).group_by(Submission.state)).all()
        by_state = {row[0]: row[1] for row in counted}
        chosen = [Submission.state == state] if state else []
        # The page's ids come from an index alone; the rows that are passed over are not read.
        page = (
            select(Submission.id).where(*chosen).order_by(Submission.id.desc()).limit(limit).offset(offset).subquery()
        )
        rows = session.execute(
            select(
                Submission.id,
                Submission.name,
                Submission.manifest["authors"],
                Submission.env_id,
                Submission.rules_version,
                Submission.method,
                Submission.state,
                Job.progress,
                Submission.created_at,
            )
            .join(page, page.c.id == Submission.id)
            .outerjoin(Job, Job.submission_id == Submission.id)
            .order_by(Submission.id.desc())
        ).all()
    lines = tuple(Listed(row[0], row[1], tuple(row[2]), *row[3:]) for row in rows)
    return Listing(lines, by_state.get(state, 0) if state else sum(by_state.values()), by_state)
