"""A submission as its page shows it: the details of the database, with intervals, curves and shares."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scipy.special  # noqa: F401  intervals need it: import it at the start of the server, not in the first request
from markupsafe import Markup
from sqlalchemy import Engine, func, select

from agents.analysis.statistics import Interval
from leaderboard.board import turns
from leaderboard.board.details import Details, details, public
from leaderboard.board.standings import on_board
from leaderboard.database.damage import UNREADABLE, damaged
from leaderboard.database.engine import reading
from leaderboard.database.tables import Event, Result, ResultRun, Submission
from leaderboard.rules import MINIMUM_SEEDS, error_limit
from leaderboard.web.charts import curves
from leaderboard.web.charts.curves import Curve
from leaderboard.web.view.page_state import PageState

MOST_NAMED = 20  # operations with own costs


@dataclass(frozen=True)
class Phase:
    """A phase of Comp: mean FLOPs over seeds, and its share of the total."""

    name: str
    flops: float
    share: float


@dataclass(frozen=True)
class LedgerView:
    """Curves and shares from the ledgers of a submission. Ledgers never change, so a view is computed once."""

    curve: Curve
    chart: Markup
    lines: Markup  # of a table of the curve
    phases: tuple[Phase, ...]  # of Comp, the largest first
    own_costs: tuple[str, ...] = ()  # operations whose cost, or freedom from cost, the submission registered


@dataclass(frozen=True)
class SubmissionView:
    """A submission as its page shows it.

    Attributes:
        intervals: interval of each metric over the verified runs; empty if there are too few runs for a score.
        ledgers: view of the ledgers; None if there is no verified run.
        place: place on the board by CER; None if the board does not show the submission.
        board_size: number of submissions on the board.
        ahead: number of submissions ahead of it in the queue.
    """

    details: Details
    intervals: Mapping[str, Interval]
    ledgers: LedgerView | None
    place: int | None = None
    board_size: int = 0
    ahead: int = 0

    @property
    def measure(self) -> str:
        """Name of the error of a tick."""
        return measure(self.details.manifest.env)


def is_rate(env_id: str) -> bool:
    """Whether an environment's errors are rates of wrong answers. The errors of a text are perplexities."""
    return error_limit(env_id) == 1.0


def measure(env_id: str) -> str:
    """Return the name of the error of a tick."""
    return "test error" if is_rate(env_id) else "perplexity"


def state_and_event(engine: Engine, submission_id: int) -> tuple[str, int] | None:
    """Return a submission's state and the number of its last event; None if there is no such submission."""
    last = select(func.max(Event.id)).where(Event.submission_id == submission_id).scalar_subquery()
    with reading(engine) as session:
        row = session.execute(select(Submission.state, last).where(Submission.id == submission_id)).first()
    return None if row is None else (row[0], row[1] or 0)


def submission_view(state: PageState, submission_id: int) -> SubmissionView:
    """Return everything that a submission's page shows.

    Raises:
        NotFoundError: there is no such submission.
        DamagedError: its rows in the database cannot be read.
    """
    engine = state.engine
    found = public(details(engine, submission_id))
    ledgers = None
    if found.runs:
        try:
            ledgers = state.ledger_views.get(submission_id, found.verified_at, lambda: _ledger_view(engine, found))
        except UNREADABLE as error:
            raise damaged(f"submission {submission_id}", error) from error
    place, board_size = _place(engine, found) if found.published else (None, 0)
    return SubmissionView(
        found,
        found.intervals() if len(found.runs) >= MINIMUM_SEEDS else {},
        ledgers,
        place,
        board_size,
        _ahead(engine, submission_id) if found.state == "queued" else 0,
    )


def _ledger_view(engine: Engine, found: Details) -> LedgerView:
    rows_of_seeds = _rows(engine, found.id)
    errors = [[float(row["error"]) for row in rows] for rows in rows_of_seeds]
    curve = Curve.of(found.manifest.name, errors)
    env_id = found.manifest.env
    chart = curves.draw([curve], measure=measure(env_id), is_rate=is_rate(env_id), id="curve")
    named = {str(name)[:200] for rows in rows_of_seeds for row in rows for name in row.get("registered", ())}
    return LedgerView(curve, chart, curves.lines(curve), _phases(rows_of_seeds), tuple(sorted(named))[:MOST_NAMED])


def _rows(engine: Engine, submission_id: int) -> list[list[dict[str, Any]]]:
    """Return the rows of every verified ledger as plain values. A `Ledger` would take five times as long."""
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


def _place(engine: Engine, found: Details) -> tuple[int, int]:
    with reading(engine) as session:
        here = on_board(found.manifest.env, found.rules_version)
        mine = select(Result.cer_mean).where(Result.submission_id == found.id).scalar_subquery()
        smaller = (Result.cer_mean < mine) | ((Result.cer_mean == mine) & (Result.submission_id < found.id))
        before = session.scalar(select(func.count()).select_from(Result).where(*here, smaller)) or 0
        board_size = session.scalar(select(func.count()).select_from(Result).where(*here)) or 0
    return before + 1, board_size


def _ahead(engine: Engine, submission_id: int) -> int:
    with reading(engine) as session:
        return turns.ahead(session, submission_id)
