"""Jobs in the database: how to read one, and how to end leases and pauses at once."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine, select, update

from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Job


def job_of(engine: Engine, submission_id: int) -> Job:
    with reading(engine) as session:
        return session.scalars(select(Job).where(Job.submission_id == submission_id)).one()


def end_leases_and_pauses(engine: Engine) -> None:
    with writing(engine) as session:
        past = now(session) - timedelta(seconds=1)
        session.execute(update(Job).where(Job.state == "running").values(lease_until=past))
        session.execute(update(Job).where(Job.state == "queued").values(available_at=past))
