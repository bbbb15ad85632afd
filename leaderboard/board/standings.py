"""The standings of an environment under one version of the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, TypeAdapter
from sqlalchemy import ColumnElement, Engine, func, select
from sqlalchemy.orm import Session

from agents.analysis.statistics import Interval
from leaderboard.database.damage import each_readable
from leaderboard.database.engine import reading
from leaderboard.database.tables import METRICS, Metric, Result, Submission
from leaderboard.rules import RULES_VERSION

LONGEST_PAGE = 1_000


@dataclass(frozen=True)
class Standing:
    """One line of the standings: a submission with its verified means over seeds and their 95 % intervals.

    Attributes:
        place: place from 1, in the requested order and among the submissions that pass the filters.
        submission_id: number of the submission.
        name: name of the submission.
        authors: names of the authors.
        env_id: id of the environment.
        rules_version: version of the rules of the verification.
        method: id of the method.
        waiting_time: in mega-batches; None if the manifest has none.
        budget_class: decade k of Comp: up to 10^k FLOPs.
        seeds: number of runs.
        cer: cumulative error rate: sum of the error over all ticks.
        mem: sum of the parameters over all ticks.
        comp: FLOPs of the whole stream.
        paper_flops: FLOPs by the paper's rule of thumb.
        final_error: error at the last tick.
        seconds: wall-clock time of the verification.
        verified_at: time of the verification.
        own_costs: whether comp has operations whose cost, or freedom from cost, the submission registered.
    """

    place: Annotated[int, Field(ge=1)]
    submission_id: int
    name: str
    authors: tuple[str, ...]
    env_id: str
    rules_version: str
    method: str
    waiting_time: int | None
    budget_class: NonNegativeInt
    seeds: NonNegativeInt
    cer: Interval
    mem: Interval
    comp: Interval
    paper_flops: Interval
    final_error: Interval
    seconds: Interval
    verified_at: datetime
    own_costs: bool = False


@dataclass(frozen=True)
class StandingsPage:
    """A page of the standings.

    Attributes:
        lines: lines of this page.
        total: number of submissions on all pages.
        damaged: numbers of the submissions of this page whose rows in the database cannot be read.
    """

    lines: tuple[Standing, ...]
    total: NonNegativeInt
    damaged: tuple[int, ...] = ()


@dataclass(frozen=True)
class Board:
    """An environment under one version of the rules, and the values of its filters.

    Attributes:
        env_id: id of the environment.
        rules_version: Major.Minor.
        submissions: number of published submissions.
        methods: ids of their methods.
        budget_classes: decades of their Comp.
        waiting_times: their waiting times.
    """

    env_id: str
    rules_version: str
    submissions: NonNegativeInt
    methods: tuple[str, ...]
    budget_classes: tuple[int, ...]
    waiting_times: tuple[int, ...]


@dataclass(frozen=True)
class StandingsQuery:
    """Filters, order and page of the standings.

    Attributes:
        method: show only this method.
        budget_class: show only this decade of Comp.
        waiting_time: show only this waiting time.
        sort: metric to sort by its mean; equal means are in the order of the submissions' numbers, or in the reverse
            order if `descending`.
        descending: whether the largest mean comes first.
        limit: number of lines of the page, at most 1,000.
        offset: number of lines before the page.
    """

    method: str | None = None
    budget_class: int | None = None
    waiting_time: int | None = None
    sort: Metric = "cer"
    descending: bool = False
    limit: int = 50
    offset: int = 0


def standings(engine: Engine, env_id: str, rules_version: str = RULES_VERSION, **query: Any) -> StandingsPage:
    """Return a page of an environment's standings. Each published submission has at least three seeds.

    Args:
        engine: engine of the board's database.
        env_id: id of the environment.
        rules_version: version of the rules; results of other versions are never included.
        query: fields of `StandingsQuery`.

    Raises:
        ValueError: the metric, the limit or the offset is invalid.
    """
    wanted = StandingsQuery(**query)
    sort, limit, offset = wanted.sort, wanted.limit, wanted.offset
    if sort not in METRICS:
        raise ValueError(f"sort={sort!r}: must be one of {', '.join(METRICS)}; use sort='cer'")
    if not 1 <= limit <= LONGEST_PAGE:
        raise ValueError(f"limit={limit}: must be 1 to {LONGEST_PAGE} lines; request further pages by their offset")
    if not 0 <= offset < 2**31:
        raise ValueError(f"offset={offset}: must be at least 0; use offset=0 for the first page")
    conditions = list(on_board(env_id, rules_version))
    for name in ("method", "budget_class", "waiting_time"):
        if getattr(wanted, name) is not None:
            conditions.append(getattr(Result, name) == getattr(wanted, name))
    order: list[Any] = [getattr(Result, f"{sort}_mean"), Result.submission_id]
    if wanted.descending:
        order = [column.desc() for column in order]
    with reading(engine) as session:
        total = session.scalar(select(func.count()).select_from(Result).where(*conditions)) or 0
        # Select the ids from an index first, so that the database does not read the lines before the page.
        page = select(Result.submission_id).where(*conditions).order_by(*order).limit(limit).offset(offset)
        places = {id: place for place, id in enumerate(session.scalars(page), start=offset + 1)}
        lines, damaged = each_readable(list(places), partial(_read, session, places))
        return StandingsPage(tuple(sorted(lines, key=lambda line: line.place)), total, damaged)


def whole_board(engine: Engine, env_id: str, rules_version: str = RULES_VERSION) -> list[Standing]:
    """Return all lines of an environment's standings by CER, in the order that they have at one moment.

    Damaged submissions are left out; `standings` names them.
    """
    with reading(engine) as session:
        ids = ids_by_cer(session, env_id, rules_version)
        places = {id: place for place, id in enumerate(ids, start=1)}
        lines = [line for part in parts_of(ids) for line in each_readable(part, partial(_read, session, places))[0]]
        return sorted(lines, key=lambda line: line.place)


def ids_by_cer(session: Session, env_id: str, rules_version: str) -> Sequence[int]:
    """Return the numbers of the published submissions of a board, the lowest CER first."""
    chosen = select(Result.submission_id).where(*on_board(env_id, rules_version))
    return session.scalars(chosen.order_by(Result.cer_mean, Result.submission_id)).all()


def parts_of(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the numbers in parts, each for one query."""
    return (ids[at : at + LONGEST_PAGE] for at in range(0, len(ids), LONGEST_PAGE))


def _read(session: Session, places: Mapping[int, int], ids: Sequence[int]) -> list[Standing]:
    rows = session.execute(
        select(Result, Submission.id, Submission.name, Submission.manifest)
        .outerjoin(Submission, Submission.id == Result.submission_id)
        .where(Result.submission_id.in_(ids))
    )
    return _STANDINGS.validate_python([_standing(places[row[0].submission_id], *row) for row in rows])


def on_board(env_id: str, rules_version: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for the published results of a board."""
    return Result.env_id == env_id, Result.rules_version == rules_version, Result.published.is_(True)


def _standing(place: int, result: Result, id: int, name: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    for metric in METRICS:
        if not all(math.isfinite(getattr(result, f"{metric}_{part}")) for part in ("mean", "half")):
            raise ValueError(f"{metric} is not finite")
    return {
        "place": place,
        "submission_id": id,
        "name": name,
        "authors": tuple(manifest["authors"]),
        "own_costs": bool(result.own_costs),
        **{field: getattr(result, field) for field in _OF_RESULT},
        **{
            metric: {
                "mean": getattr(result, f"{metric}_mean"),
                "half": getattr(result, f"{metric}_half"),
                "n": result.seeds,
            }
            for metric in METRICS
        },
    }


_OF_RESULT = ("env_id", "rules_version", "method", "waiting_time", "budget_class", "seeds", "verified_at")
_STANDINGS = TypeAdapter(list[Standing])


def boards(engine: Engine) -> list[Board]:
    """Return the environments and versions that have published results, and the values of their filters."""
    groups: dict[tuple[str, str], list[Any]] = {}
    with reading(engine) as session:
        columns = (Result.env_id, Result.rules_version, Result.method, Result.budget_class, Result.waiting_time)
        counted = select(*columns, func.count()).where(Result.published.is_(True)).group_by(*columns)
        for env_id, version, *group in session.execute(counted):
            if isinstance(env_id, str) and isinstance(version, str) and _is_whole(*group[:3]):
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


def _is_whole(method: object, budget_class: object, waiting_time: object) -> bool:
    """Return whether the values of a filter are what this program writes, not those of a damaged row."""
    return (
        isinstance(method, str)
        and isinstance(budget_class, int)
        and 0 <= budget_class <= 1_000
        and (waiting_time is None or isinstance(waiting_time, int))
    )
