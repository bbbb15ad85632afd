"""A submission's files: how they come in, and who may have them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from leaderboard.archive import from_zip
from leaderboard.details import details
from leaderboard.engine import reading
from leaderboard.submissions import Submitted, package_of, submit
from leaderboard.web import schemas
from leaderboard.web.api.common import (
    NO_SUBMISSION,
    NO_TOKEN,
    TOKEN_OR_NONE,
    Database,
    MaybeCaller,
    SubmissionId,
    errors,
    may_download,
    require,
)
from leaderboard.web.identity import Identity
from leaderboard.web.limits import spend
from leaderboard.web.settings import Settings

router = APIRouter(tags=["submissions"])
Sender = Annotated[Identity, Depends(require("submit"))]
ZIP = "application/zip"
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/submissions",
    status_code=201,
    response_model=schemas.Submitted,
    responses={
        **NO_TOKEN,
        200: {"model": schemas.Submitted, "description": "the same files were sent before, by anyone"},
        201: {"description": "stored, and queued for verification"},
        **errors(_408="the archive took too long to arrive", _415="not an archive by its Content-Type"),
    },
    openapi_extra={"requestBody": {"required": True, "content": {ZIP: _BINARY}}},
)
async def send(request: Request, response: Response, engine: Database, caller: Sender) -> object:
    """Send a submission, as a zip of its folder. The same files are one submission, however often they are sent."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != ZIP:
        raise HTTPException(415, f"send a zip of the submission's folder, with the header `Content-Type: {ZIP}`")
    settings: Settings = request.app.state.settings
    async with request.app.state.uploads:  # an archive and what is in it are in memory
        try:
            async with asyncio.timeout(settings.upload_seconds):
                archive = await request.body()
        except TimeoutError as error:
            raise HTTPException(
                408, f"the archive did not arrive in {settings.upload_seconds:g} s; try again"
            ) from error
        made, digest = await run_in_threadpool(_receive, engine, archive, caller, settings.submissions_per_day)
    if not made.new:
        response.status_code = 200
    root = request.scope.get("root_path", "").rstrip("/")
    response.headers["Location"] = f"{root}/api/v1/submissions/{made.id}"
    return {"id": made.id, "state": made.state, "new": made.new, "digest": digest}


def _receive(engine: Engine, archive: bytes, caller: Identity, per_day: int) -> tuple[Submitted, str]:
    package = from_zip(archive)
    return submit(engine, package, caller.name, per_day=per_day), package.digest


@router.get(
    "/submissions/{submission_id}/package",
    response_class=Response,
    responses={
        **NO_SUBMISSION,
        **errors(_403="not published; its sender and maintainers may have it"),
        200: {"description": "the files, as a zip that is the same for the same files", "content": {ZIP: _BINARY}},
    },
    openapi_extra=TOKEN_OR_NONE,
)
def package(request: Request, engine: Database, caller: MaybeCaller, submission_id: SubmissionId) -> Response:
    """The files of a submission."""
    spend(request, "downloads")
    if not may_download(caller, details(engine, submission_id)):
        raise HTTPException(
            403,
            f"submission {submission_id}: its files are shown once its result is; log in as its sender to have them",
        )
    with reading(engine) as session:
        content = package_of(session, submission_id).to_zip()
    headers = {"Content-Disposition": f'attachment; filename="submission-{submission_id}.zip"'}
    return Response(content, media_type=ZIP, headers=headers)
