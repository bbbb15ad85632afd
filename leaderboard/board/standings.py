"""What the board shows: the standings of an environment under one version of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Engine, func, select
from sqlalchemy.orm import InstrumentedAttribute

from agents.statistics import Interval
from leaderboard.database import METRICS, Result, Submission
from leaderboard.engine import reading
from leaderboard.rules import RULES_VERSION

Metric = Literal["cer", "mem", "comp", "paper_flops", "final_error", "seconds"]
LONGEST_PAGE = 1_000


@dataclass(frozen=True)
class Standing:
    """One line of the standings: a submission with its verified means over seeds and their 95 % intervals.

    Attributes:
        place: from 1, in the order and among the submissions that were asked for.
        submission_id: of the submission.
        name: of the submission.
        authors: names.
        env_id: of the environment.
        rules_version: under which it was verified.
        method: id of the method.
        waiting_time: in mega-batches, None where the manifest has none.
        budget_class: decade of Comp, see `leaderboard.rules.budget_class`.
        seeds: number of runs.
        cer: cumulative error.
        mem: sum of parameters over ticks.
        comp: FLOPs executed.
        paper_flops: FLOPs by the paper's rule of thumb.
        final_error: error at the last tick.
        seconds: wall-clock time of the verification.
        verified_at: when.
    """

    place: int
    submission_id: int
    name: str
    authors: tuple[str, ...]
    env_id: str
    rules_version: str
    method: str
    waiting_time: int | None
    budget_class: int
    seeds: int
    cer: Interval
    mem: Interval
    comp: Interval
    paper_flops: Interval
    final_error: Interval
    seconds: Interval
    verified_at: datetime


@dataclass(frozen=True)
class Standings:
    """A page of the standings.

    Attributes:
        lines: in order.
        total: how many submissions there are on all pages.
    """

    lines: tuple[Standing, ...]
    total: int


@dataclass(frozen=True)
class Board:
    """An environment under one version of the rules.

    Attributes:
        env_id: of the environment.
        rules_version: Major.Minor.
        submissions: how many are shown.
        methods: ids that the board can be filtered by.
        budget_classes: decades of Comp that it can be filtered by.
        waiting_times: waiting times that it can be filtered by.
    """

    env_id: str
    rules_version: str
    submissions: int
    methods: tuple[str, ...]
    budget_classes: tuple[int, ...]
    waiting_times: tuple[int, ...]


def standings(
    engine: Engine,
    env_id: str,
    rules_version: str = RULES_VERSION,
    *,
    method: str | None = None,
    budget_class: int | None = None,
    waiting_time: int | None = None,
    sort: Metric = "cer",
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> Standings:
    """A page of an environment's standings. What is published has at least three seeds, see `leaderboard.results`.

    Args:
        engine: of the board's database.
        env_id: of the environment.
        rules_version: results of other versions are never among them.
        method: of this method alone.
        budget_class: of this decade of Comp alone.
        waiting_time: of this waiting time alone.
        sort: by the mean of which number; those who have the same stand in the order in which they were sent.
        descending: the largest first.
        limit: lines of the page, at most 1,000.
        offset: lines before the page.

    Raises:
        ValueError: an order, limit or offset that there is not.
    """
    if sort not in get_args(Metric):
        raise ValueError(f"sort={sort!r}: must be one of {', '.join(METRICS)}")
    if not 1 <= limit <= LONGEST_PAGE:
        raise ValueError(f"limit={limit}: a page has 1 to {LONGEST_PAGE} lines")
    if not 0 <= offset < 2**31:
        raise ValueError(f"offset={offset}: must be a number from 0 on")
    chosen = _on_board(env_id, rules_version)
    for column, value in (
        (Result.method, method),
        (Result.budget_class, budget_class),
        (Result.waiting_time, waiting_time),
    ):
        if value is not None:
            chosen.append(column == value)
    key: InstrumentedAttribute[float | None] = getattr(Result, f"{sort}_mean")
    order: list[ColumnElement[Any]]
    order = [key.desc(), Result.submission_id.desc()] if descending else [key.asc(), Result.submission_id.asc()]
    with reading(engine) as session:
        total = session.scalar(select(func.count()).select_from(Result).where(*chosen)) or 0
        # The page's ids are read from an index alone, so that the lines before it are passed over and not read.
        page = select(Result.submission_id).where(*chosen).order_by(*order).limit(limit).offset(offset).subquery()
        rows = session.execute(
            select(Result, Submission.name, Submission.manifest["authors"])
            .join(page, page.c.submission_id == Result.submission_id)
            .join(Submission, Submission.id == Result.submission_id)
            .order_by(*order)
        ).all()
        lines = tuple(
            _standing(place, result, name, authors)
            for place, (result, name, authors) in enumerate(rows, start=offset + 1)
        )
    return Standings(lines, total)


def _on_board(env_id: str, rules_version: str) -> list[ColumnElement[bool]]:
    return [
        Result.env_id == env_id,
        Result.rules_version == rules_version,
        Result.published.is_(True),
    ]


def _standing(place: int, result: Result, name: str, authors: Sequence[str]) -> Standing:
    assert result.budget_class is not None
    return Standing(
        place=place,
        submission_id=result.submission_id,
        name=name,
        authors=tuple(authors),
        env_id=result.env_id,
        rules_version=result.rules_version,
        method=result.method,
        waiting_time=result.waiting_time,
        budget_class=result.budget_class,
        seeds=result.seeds,
        verified_at=result.verified_at,
        **{metric: _interval(result, metric) for metric in METRICS},
    )


def _interval(result: Result, metric: str) -> Interval:
    return Interval(getattr(result, f"{metric}_mean"), getattr(result, f"{metric}_half"), result.seeds)


def boards(engine: Engine) -> list[Board]:
    """The environments and versions that have published results, and what each can be filtered by."""
    groups: dict[tuple[str, str], list[Any]] = {}
    with reading(engine) as session:
        columns = (Result.env_id, Result.rules_version, Result.method, Result.budget_class, Result.waiting_time)
        counted = select(*columns, func.count()).where(Result.published.is_(True)).group_by(*columns)
        for env_id, version, *group in session.execute(counted):
            groups.setdefault((env_id, version), []).append(group)
    return [
        Board(
            env_id=env_id,
            rules_version=version,
            submissions=sum(count for *_, count in found),
            methods=tuple(sorted({method for method, *_ in found})),
            budget_classes=tuple(sorted({budget for _, budget, *_ in found})),
            waiting_times=tuple(sorted({wait for *_, wait, _ in found if wait is not None})),
        )
        for (env_id, version), found in sorted(groups.items())
    ]
