"""A submission as its page shows it: what stands in the database, with the numbers made ready."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import scipy.stats  # noqa: F401  what an interval takes: a second now, and not of the first visitor
from markupsafe import Markup
from sqlalchemy import Engine, func, select

from agents.statistics import Interval
from leaderboard.database import METRICS, Event, Job, Result, ResultRun, Submission
from leaderboard.details import Details, details, for_everyone
from leaderboard.engine import reading
from leaderboard.rules import MINIMUM_SEEDS, error_limit
from leaderboard.web.charts import curves
from leaderboard.web.charts.curves import Curve
from leaderboard.web.pages.shared import Shared

# What happened, in words.
_HAPPENED = {
    "submitted": "sent",
    "claimed": "a worker began to run it again",
    "lease expired": "the worker was lost; another one will begin anew",
    "attempt failed": "the attempt failed on the worker's side",
    "given back": "the worker was stopped; another one will begin anew",
    "failed": "given up",
    "verified": "verified",
    "flagged": "run again, and noticed by the audit: a maintainer will look at it",
    "rejected": "rejected",
    "accepted": "accepted by a maintainer",
}


@dataclass(frozen=True)
class Happened:
    """A line of the history: when, what, and words that everyone may read."""

    at: datetime
    what: str
    text: str


@dataclass(frozen=True)
class Phase:
    """A part of Comp: mean FLOPs over seeds, and its share of all."""

    name: str
    flops: float
    share: float


@dataclass(frozen=True)
class Played:
    """What the ledgers of a submission say. Once they are there they never change, so it is made once.

    Attributes:
        curve: of its errors.
        picture: of the curve.
        lines: of the curve, for a table.
        phases: of Comp, the largest first.
    """

    curve: Curve
    picture: Markup
    lines: Markup
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Described:
    """A submission, ready to be shown.

    Attributes:
        found: what the database says.
        intervals: by metric, over the verified runs; empty where they are too few for a score.
        played: what its ledgers say, None before there is a run.
        history: oldest first.
        place: on the board by CER, None where it is not there.
        of: how many are on the board.
        before: how many submissions wait before it.
    """

    found: Details
    intervals: Mapping[str, Interval]
    played: Played | None
    history: tuple[Happened, ...] = ()
    place: int | None = None
    of: int = 0
    before: int = 0

    @property
    def measure(self) -> str:
        """What an error of a tick is."""
        return measure(self.found.manifest.env)


def is_rate(env_id: str) -> bool:
    """Whether an environment's errors are rates of wrong answers; a text's are perplexities."""
    return error_limit(env_id) == 1.0


def measure(env_id: str) -> str:
    """What an error of a tick is."""
    return "test error" if is_rate(env_id) else "perplexity"


def state_of(engine: Engine, submission_id: int) -> tuple[str, int] | None:
    """The state of a submission and the number of the last event about it; None where there is no such submission."""
    last = select(func.max(Event.id)).where(Event.submission_id == submission_id).scalar_subquery()
    with reading(engine) as session:
        row = session.execute(select(Submission.state, last).where(Submission.id == submission_id)).first()
    return None if row is None else (row[0], row[1] or 0)


def describe(common: Shared, submission_id: int) -> Described:
    """All that a submission's page shows.

    Raises:
        NotFoundError: there is no such submission.
    """
    engine = common.engine
    found = for_everyone(details(engine, submission_id))
    intervals = {}
    if len(found.runs) >= MINIMUM_SEEDS:
        intervals = {name: Interval.of([float(getattr(run, name)) for run in found.runs]) for name in METRICS}
    place, of = _place(engine, found) if found.published else (None, 0)
    return Described(
        found,
        intervals,
        common.played.get(submission_id, found.verified_at, lambda: _played(engine, found)) if found.runs else None,
        tuple(Happened(at, _HAPPENED.get(kind, kind), text) for at, kind, text in found.events),
        place,
        of,
        _before(engine, submission_id) if found.state == "queued" else 0,
    )


def _played(engine: Engine, found: Details) -> Played:
    rows_of_seeds = _rows(engine, found.id)
    errors = [[float(row["error"]) for row in rows] for rows in rows_of_seeds]
    curve = Curve.of(found.manifest.name, errors)
    env_id = found.manifest.env
    picture = curves.draw([curve], measure=measure(env_id), is_rate=is_rate(env_id), id="curve")
    return Played(curve, picture, curves.lines(curve), _phases(rows_of_seeds))


def _rows(engine: Engine, submission_id: int) -> list[list[dict[str, Any]]]:
    """The rows of every verified ledger as plain values: as `Ledger`, five times as much work for a page."""
    with reading(engine) as session:
        stored = session.scalars(
            select(ResultRun.ledger).join(Result).where(Result.submission_id == submission_id).order_by(ResultRun.seed)
        ).all()
    return [json.loads(b"[" + b",".join(zlib.decompress(packed).splitlines()) + b"]") for packed in stored]


def _phases(rows_of_seeds: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Phase, ...]:
    sums: Counter[str] = Counter()
    for rows in rows_of_seeds:
        for row in rows:
            sums.update(row["flops"])
    total = sums.total()
    found = [Phase(name, flops / len(rows_of_seeds), flops / total if total else 0.0) for name, flops in sums.items()]
    return tuple(sorted(found, key=lambda phase: (-phase.flops, phase.name)))


def _place(engine: Engine, found: Details) -> tuple[int | None, int]:
    with reading(engine) as session:
        here = (
            Result.env_id == found.manifest.env,
            Result.rules_version == found.rules_version,
            Result.published.is_(True),
        )
        mine = select(Result.cer_mean).where(Result.submission_id == found.id).scalar_subquery()
        smaller = (Result.cer_mean < mine) | ((Result.cer_mean == mine) & (Result.submission_id < found.id))
        before = session.scalar(select(func.count()).select_from(Result).where(*here, smaller)) or 0
        of = session.scalar(select(func.count()).select_from(Result).where(*here)) or 0
    return before + 1, of


def _before(engine: Engine, submission_id: int) -> int:
    with reading(engine) as session:
        mine = session.execute(select(Job.available_at, Job.id).where(Job.submission_id == submission_id)).first()
        if mine is None:
            return 0
        earlier = (Job.available_at < mine[0]) | ((Job.available_at == mine[0]) & (Job.id < mine[1]))
        return session.scalar(select(func.count()).select_from(Job).where(Job.state == "queued", earlier)) or 0
