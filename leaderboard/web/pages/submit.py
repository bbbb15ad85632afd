"""How to submit, the form that does it, and what the numbers mean."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leaderboard import package as packages
from leaderboard.archive import MAXIMUM_ARCHIVE_BYTES, from_zip
from leaderboard.errors import SubmissionError
from leaderboard.queue import MAXIMUM_ATTEMPTS
from leaderboard.rules import MAXIMUM_SEEDS, MINIMUM_SEEDS
from leaderboard.submissions import submit
from leaderboard.web.identity import check_csrf, csrf_token, identity
from leaderboard.web.pages.forms import field, go, require
from leaderboard.web.pages.render import html, remembered, text
from leaderboard.web.settings import Settings

router = APIRouter()


def submit_page(request: Request) -> Response:
    """How to submit, and the form for who is logged in."""
    return _page(request)


def _page(request: Request, status: int = 200, problems: tuple[str, ...] = ()) -> Response:
    settings: Settings = request.app.state.settings
    caller = identity(request)
    return html(
        request,
        "submit.html",
        status,
        section="submit",
        csrf=csrf_token(request) if caller else "",
        caller=caller,
        wrong=problems,
        here=str(request.base_url).rstrip("/"),
        open=settings.registration == "open",
        per_day=settings.submissions_per_day,
        files=packages.MAXIMUM_FILES,
        megabytes=packages.MAXIMUM_BYTES // packages.MEBIBYTE,
        archive_megabytes=MAXIMUM_ARCHIVE_BYTES // packages.MEBIBYTE,
        seeds=(MINIMUM_SEEDS, MAXIMUM_SEEDS),
        attempts=MAXIMUM_ATTEMPTS,
    )


async def send(request: Request) -> Response:
    """Take a submission as a zip in a form."""
    settings: Settings = request.app.state.settings
    await run_in_threadpool(require, request, "submit")  # first: nobody unknown holds a place in the queue of uploads
    async with request.app.state.uploads:  # an archive and what is in it are in memory
        try:
            async with asyncio.timeout(settings.upload_seconds), request.form(max_files=1, max_fields=5) as form:
                file = form.get("archive")
                archive = await file.read() if isinstance(file, UploadFile) else b""
        except TimeoutError as error:
            raise HTTPException(
                408, f"the archive did not arrive in {settings.upload_seconds:g} s; try again"
            ) from error
        return await run_in_threadpool(_receive, request, form, archive, settings.submissions_per_day)


def _receive(request: Request, form: FormData, archive: bytes, per_day: int) -> Response:
    check_csrf(request, field(form, "csrf"))
    caller = require(request, "submit")
    if not archive:
        return _page(request, 422, ("archive: no file was sent; choose a zip of the submission's folder",))
    try:
        made = submit(request.app.state.engine, from_zip(archive), caller.name, per_day=per_day)
    except SubmissionError as error:
        return _page(request, 422, tuple(shown_whole(problem) for problem in error.problems))
    return go(request, f"/submissions/{made.id}")


def shown_whole(problem: str) -> str:
    """A problem as the page shows it: not longer than anyone would read.

    >>> shown_whole("name: missing")
    'name: missing'
    """
    return problem if len(problem) <= 1_000 else problem[:1_000] + "…"


def rules_page(request: Request) -> Response:
    """What the numbers mean, and what is guaranteed."""

    def make() -> str:
        return text(request, "rules.html", section="rules", seeds=(MINIMUM_SEEDS, MAXIMUM_SEEDS))

    return remembered(request, "rules", 0, make)


router.add_route("/submit", submit_page, methods=["GET"], include_in_schema=False)
router.add_route("/submit", send, methods=["POST"], include_in_schema=False)
router.add_route("/rules", rules_page, methods=["GET"], include_in_schema=False)
