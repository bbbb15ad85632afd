"""What became of submissions, in lines for a terminal."""

from __future__ import annotations

from sqlalchemy import Engine, select
from sqlalchemy.orm import joinedload

from agents.statistics import Interval
from leaderboard.database import METRICS, Submission
from leaderboard.details import details
from leaderboard.engine import reading
from leaderboard.text_rules import printable


def latest(engine: Engine, count: int) -> list[tuple[str, ...]]:
    """The submissions that were sent last: id, state, environment, name, method, moment, progress.

    Raises:
        ValueError: the count is not one from 1 on.
    """
    if count < 1:
        raise ValueError(f"--latest {count}: give 1 or more")
    with reading(engine) as session:
        found = session.scalars(
            select(Submission).options(joinedload(Submission.job)).order_by(Submission.id.desc()).limit(count)
        )
        return [
            (
                str(submission.id),
                submission.state,
                submission.env_id,
                submission.name,
                submission.method,
                f"{submission.created_at:%Y-%m-%d %H:%M}",
                printable((submission.job.progress if submission.job else None) or ""),
            )
            for submission in found
        ]


def describe(engine: Engine, submission_id: int) -> list[str]:
    """One submission, for its authors and for maintainers.

    Raises:
        NotFoundError: there is no such submission.
    """
    found = details(engine, submission_id)
    manifest = found.manifest
    lines = [
        f"submission {found.id}: {found.state}" + (", on the board" if found.published else ""),
        f"{manifest.name}, by {', '.join(manifest.authors)}",
        f"{manifest.env}, rules {found.rules_version}, method {manifest.method}, sent by {found.account}",
        f"digest {found.digest}",
    ]
    if found.progress:
        lines.append(f"attempt {found.attempts}: {found.progress}")
    for metric in METRICS if len(found.runs) > 1 else ():
        interval = Interval.of([float(getattr(run, metric)) for run in found.runs])
        lines.append(f"{metric} {interval.text('.4g')} over {interval.n} seeds")
    for finding in found.findings:
        seed = "" if finding.seed is None else f" (seed {finding.seed})"
        lines.append(f"{finding.severity}: {finding.code}{seed}: {finding.text}")
    if found.last_error:
        lines.append(f"last error: {found.last_error}")
    lines += [f"{at:%Y-%m-%d %H:%M:%S} {kind}" for at, kind, _ in found.events]
    return [printable(line) for line in lines]
