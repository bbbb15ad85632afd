"""Operations that send and return a submission's files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from leaderboard.board.details import details
from leaderboard.board.submissions import Submitted, package_of, submit
from leaderboard.database.engine import reading
from leaderboard.submission.zip_archive import from_zip
from leaderboard.web.api.common import (
    NO_SUBMISSION,
    NO_TOKEN,
    TOKEN_OR_NONE,
    Database,
    MaybeCaller,
    SubmissionId,
    attached,
    errors,
    may_download,
    require,
)
from leaderboard.web.guard.errors import root_path
from leaderboard.web.guard.identity import Identity
from leaderboard.web.guard.limits import network_of, spend
from leaderboard.web.guard.settings import Settings
from leaderboard.web.guard.uploads import download_place, place_of

router = APIRouter(tags=["submissions"])
Sender = Annotated[Identity, Depends(require("submit"))]
ZIP = "application/zip"
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/submissions",
    status_code=201,
    responses={
        **NO_TOKEN,
        200: {"model": Submitted, "description": "the same files were sent before, by any account"},
        201: {"description": "stored and queued for verification"},
        **errors(_408="the archive was too slow", _415="the Content-Type is not that of a zip"),
    },
    openapi_extra={"requestBody": {"required": True, "content": {ZIP: _BINARY}}},
)
async def send(request: Request, response: Response, caller: Sender) -> Submitted:
    """Send a submission as a zip of its folder. The same files are always one submission."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != ZIP:
        raise HTTPException(415, f"Content-Type: must be {ZIP}; send a zip of the submission's folder with this header")
    async with place_of(request, caller.account_id):  # limits the archives in memory
        archive = await request.body()
        sent = await run_in_threadpool(receive, request, archive, caller)
    if not sent.new:
        response.status_code = 200
    response.headers["Location"] = f"{root_path(request.scope)}/api/v1/submissions/{sent.id}"
    return sent


def receive(request: Request, archive: bytes, caller: Identity) -> Submitted:
    """Submit an archive under the limits of the board's operator."""
    settings: Settings = request.app.state.settings
    return submit(
        request.app.state.engine,
        from_zip(archive),
        caller.name,
        per_day=settings.submissions_per_day,
        waiting_per_account=settings.waiting_per_account,
        waiting_per_network=settings.waiting_per_address,
        network=network_of(request),
    )


@router.get(
    "/submissions/{submission_id}/package",
    response_class=Response,
    responses={
        **NO_SUBMISSION,
        **errors(_403="not published; only its sender and maintainers may have the files"),
        200: {"description": "the files as a zip; equal files give equal zips", "content": {ZIP: _BINARY}},
    },
    openapi_extra=TOKEN_OR_NONE,
)
def package(request: Request, engine: Database, caller: MaybeCaller, submission_id: SubmissionId) -> Response:
    """Return the files of a submission."""
    spend(request, "downloads")
    if not may_download(caller, details(engine, submission_id)):
        rule = "its files are not public before its result; log in as its sender"
        raise HTTPException(403, f"submission {submission_id}: {rule}")

    def archive() -> Response:
        with reading(engine) as session:
            content = package_of(session, submission_id).to_zip()
        return attached(content, ZIP, f"submission-{submission_id}.zip")

    return _Download(download_place(request, None if caller is None else caller.account_id), archive)


class _Download(Response):
    """A response that is made when there is a place for it, and holds the place until it is sent."""

    def __init__(self, place: AbstractAsyncContextManager[None], make: Callable[[], Response]) -> None:
        super().__init__()
        self._place, self._make = place, make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._place:
            response = await run_in_threadpool(self._make)
            await response(scope, receive, send)
