"""Operations on boards and standings, and the state of the server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

import alma_env
from leaderboard import rules
from leaderboard.board import export, queue, standings
from leaderboard.board.standings import LONGEST_PAGE, Board, StandingsPage, StandingsQuery
from leaderboard.database.engine import reading
from leaderboard.database.tables import LARGEST_ID, Metric
from leaderboard.errors import NotFoundError
from leaderboard.web.api.common import Database, EnvId, Offset, RulesVersion, attached, errors
from leaderboard.web.api.schemas import Health
from leaderboard.web.guard.limits import spend

router = APIRouter(tags=["boards"])
MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}


@router.get("/health")
def health(engine: Database) -> Health:
    """Return the state of the server and its database."""
    with reading(engine) as session:
        waiting = queue.waiting(session)
    return Health(status="ok", version=alma_env.__version__, rules_version=rules.RULES_VERSION, waiting=waiting)


@router.get("/boards")
def boards(engine: Database) -> list[Board]:
    """Return the environments and versions that have published results, and the values of their filters."""
    return standings.boards(engine)


@router.get("/boards/{env_id}/{rules_version}")
def board(
    engine: Database,
    env_id: EnvId,
    rules_version: RulesVersion,
    method: Annotated[str | None, Query(pattern=r"^[a-z0-9+_.-]{1,40}$", description="show only this method")] = None,
    budget_class: Annotated[int | None, Query(ge=0, le=1000, description="show only this decade of Comp")] = None,
    waiting_time: Annotated[
        int | None, Query(ge=0, le=LARGEST_ID, description="show only this waiting time, in mega-batches")
    ] = None,
    sort: Annotated[Metric, Query(description="metric to sort by its mean")] = "cer",
    descending: Annotated[bool, Query(description="whether the largest mean comes first")] = False,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="number of lines of the page")] = 50,
    offset: Offset = 0,
) -> StandingsPage:
    """Return a page of the standings. It is empty if the board has no published result."""
    query = StandingsQuery(method, budget_class, waiting_time, sort, descending, limit, offset)
    return standings.standings(engine, env_id, rules_version, **vars(query))


@router.get(
    "/boards/{env_id}/{rules_version}/export",
    response_class=Response,
    responses={
        **errors(_404="the board has no published result"),
        200: {
            "description": "the board as a file",
            "content": {
                "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
                "text/csv": {"schema": {"type": "string"}},
                "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
            },
        },
    },
)
def export_board(
    request: Request,
    engine: Database,
    env_id: EnvId,
    rules_version: RulesVersion,
    format: Annotated[Literal["csv", "json", "parquet"], Query(description="format of the file")] = "csv",
    runs: Annotated[bool, Query(description="one line per verified run instead of one line per submission")] = False,
) -> Response:
    """Return the whole board as a file."""
    spend(request, "exports")
    records = (export.runs if runs else export.submissions)(engine, env_id, rules_version)
    if not records:
        raise NotFoundError(f"{env_id}, rules {rules_version}: no published result; `/api/v1/boards` lists the boards")
    name = f"{env_id}-{rules_version}{'-runs' if runs else ''}.{format}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"board.{format}"
        export.write(records, file)
        content = file.read_bytes()
    return attached(content, MEDIA_TYPES[format], name)
