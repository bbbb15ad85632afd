"""What became of submissions, in lines for a terminal."""

from __future__ import annotations

from sqlalchemy import Engine

from agents.statistics import Interval
from leaderboard.database import METRICS
from leaderboard.details import Details, details
from leaderboard.recent import LONGEST_PAGE, Sent, recent
from leaderboard.text_rules import printable


def latest(engine: Engine, count: int) -> list[tuple[str, ...]]:
    """The submissions that were sent last: id, state, environment, name, method, moment, progress.

    Raises:
        ValueError: the count is not one from 1 on.
    """
    if count < 1:
        raise ValueError(f"--latest {count}: give 1 or more")
    found, _ = recent(engine, limit=min(count, LONGEST_PAGE))
    return [columns(sent) for sent in found]


def columns(sent: Sent) -> tuple[str, ...]:
    """A submission of a list: id, state, environment, name, method, moment, progress."""
    moment = f"{sent.created_at:%Y-%m-%d %H:%M}"
    texts = (str(sent.id), sent.state, sent.env_id, sent.name, sent.method, moment, sent.progress or "")
    return tuple(map(printable, texts))


def describe(engine: Engine, submission_id: int) -> list[str]:
    """One submission, for its authors and for maintainers.

    Raises:
        NotFoundError: there is no such submission.
    """
    return lines_of(details(engine, submission_id))


def lines_of(found: Details) -> list[str]:
    """One submission in lines."""
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
