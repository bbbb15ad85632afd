"""Boards and their standings, and whether the server is well."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

import alma_env
from leaderboard import export, queue, rules, standings
from leaderboard.engine import reading
from leaderboard.errors import NotFoundError
from leaderboard.standings import LONGEST_PAGE, Metric
from leaderboard.web import schemas
from leaderboard.web.api.common import LARGEST_ID, Database, EnvId, Offset, RulesVersion, errors
from leaderboard.web.limits import spend

router = APIRouter(tags=["boards"])
MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}


@router.get("/health")
def health(engine: Database) -> schemas.Health:
    """Whether the server and its database answer."""
    with reading(engine) as session:
        waiting = queue.waiting(session)
    return schemas.Health(status="ok", version=alma_env.__version__, rules_version=rules.RULES_VERSION, waiting=waiting)


@router.get("/boards", response_model=list[schemas.Board])
def boards(engine: Database) -> object:
    """The environments and versions that have published results, and what each can be filtered by."""
    return standings.boards(engine)


@router.get("/boards/{env_id}/{rules_version}", response_model=schemas.StandingsPage)
def board(
    engine: Database,
    env_id: EnvId,
    rules_version: RulesVersion,
    method: Annotated[str | None, Query(pattern=r"^[a-z0-9+_.-]{1,40}$", description="of this method alone")] = None,
    budget_class: Annotated[int | None, Query(ge=0, le=1000, description="of this decade of Comp alone")] = None,
    waiting_time: Annotated[
        int | None, Query(ge=0, le=LARGEST_ID, description="of this waiting time alone, in mega-batches")
    ] = None,
    sort: Annotated[Metric, Query(description="by the mean of which number")] = "cer",
    descending: Annotated[bool, Query(description="the largest first")] = False,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="lines of the page")] = 50,
    offset: Offset = 0,
) -> object:
    """A page of the standings; empty for a board that has no published result."""
    return standings.standings(
        engine,
        env_id,
        rules_version,
        method=method,
        budget_class=budget_class,
        waiting_time=waiting_time,
        sort=sort,
        descending=descending,
        limit=limit,
        offset=offset,
    )


@router.get(
    "/boards/{env_id}/{rules_version}/export",
    response_class=Response,
    responses={
        **errors(_404="no result of this board is published"),
        200: {
            "description": "a file",
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
    format: Annotated[Literal["csv", "json", "parquet"], Query(description="of the file")] = "csv",
    runs: Annotated[bool, Query(description="one line per verified run, not one per submission")] = False,
) -> Response:
    """The whole board as a file."""
    spend(request, "exports")
    records = (export.runs if runs else export.submissions)(engine, env_id, rules_version)
    if not records:
        raise NotFoundError(f"{env_id}, rules {rules_version}: no result is published; `/api/v1/boards` lists boards")
    name = f"{env_id}-{rules_version}{'-runs' if runs else ''}.{format}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"board.{format}"
        export.write(records, file)
        content = file.read_bytes()
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=MEDIA_TYPES[format], headers=headers)
