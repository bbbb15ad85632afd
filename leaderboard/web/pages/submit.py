"""The submit page with its form, and the rules page."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.board.jobs import MAXIMUM_ATTEMPTS
from leaderboard.errors import SubmissionError
from leaderboard.rules import MAXIMUM_SEEDS, MINIMUM_SEEDS
from leaderboard.submission import package as packages
from leaderboard.submission.zip_archive import MAXIMUM_ARCHIVE_BYTES
from leaderboard.web.api.packages import receive
from leaderboard.web.guard.identity import check_csrf, csrf_token, identity, require
from leaderboard.web.guard.settings import Settings
from leaderboard.web.guard.uploads import place_of
from leaderboard.web.view.forms import field, redirect
from leaderboard.web.view.render import cached_html, html, render

router = APIRouter()


def submit_page(request: Request, status: int = 200, problems: tuple[str, ...] = ()) -> Response:
    """Show how to submit, and the form if the caller is logged in."""
    settings: Settings = request.app.state.settings
    caller = identity(request)
    return html(
        request,
        "submit.html",
        status,
        section="submit",
        csrf=csrf_token(request) if caller else "",
        caller=caller,
        problems=problems,
        board_url=settings.public_url,
        open=settings.registration == "open",
        per_day=settings.submissions_per_day,
        waiting=settings.waiting_per_account,
        files=packages.MAXIMUM_FILES,
        megabytes=packages.MAXIMUM_BYTES // packages.MEBIBYTE,
        archive_megabytes=MAXIMUM_ARCHIVE_BYTES // packages.MEBIBYTE,
        seeds=(MINIMUM_SEEDS, MAXIMUM_SEEDS),
        attempts=MAXIMUM_ATTEMPTS,
    )


async def send(request: Request) -> Response:
    """Take a submission from the form."""
    # Before the upload, so that only known callers take a place among the uploads.
    caller = await run_in_threadpool(require, request, "submit")
    async with place_of(request, caller.account_id):  # limits the archives in memory
        async with request.form(max_files=1, max_fields=5) as form:
            file = form.get("archive")
            archive = await file.read() if isinstance(file, UploadFile) else b""
        return await run_in_threadpool(_receive, request, form, archive)


def _receive(request: Request, form: FormData, archive: bytes) -> Response:
    check_csrf(request, field(form, "csrf"))
    caller = require(request, "submit")
    if not archive:
        return submit_page(request, 422, ("archive: the file is missing; choose a zip of the submission's folder",))
    try:
        sent = receive(request, archive, caller)
    except SubmissionError as error:
        return submit_page(request, 422, tuple(map(shortened, error.problems)))
    return redirect(request, f"/submissions/{sent.id}")


def shortened(problem: str) -> str:
    """Return the first 1,000 characters of a problem.

    >>> shortened("name: missing")
    'name: missing'
    """
    return problem if len(problem) <= 1_000 else problem[:1_000] + "…"


def rules_page(request: Request) -> Response:
    """Show what the numbers mean and what the board guarantees."""

    def make() -> str:
        return render(request, "rules.html", section="rules", seeds=(MINIMUM_SEEDS, MAXIMUM_SEEDS))

    return cached_html(request, "rules", 0, make)


router.add_route("/submit", submit_page, methods=["GET"])
router.add_route("/submit", send, methods=["POST"])
router.add_route("/rules", rules_page, methods=["GET"])
