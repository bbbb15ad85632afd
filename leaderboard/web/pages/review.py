"""The page for maintainers: flagged results, failed verifications, and decisions about results."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.board import finding_guide, queue
from leaderboard.board.details import Details, details
from leaderboard.board.listing import list_submissions
from leaderboard.board.results import decide
from leaderboard.errors import DamagedError, NotFoundError, SubmissionError
from leaderboard.web.guard.identity import identity, require
from leaderboard.web.view.forms import field, form_endpoint, form_page, redirect, redirect_to_login
from leaderboard.web.view.render import html
from leaderboard.web.view.urls import QueryError, whole_number

router = APIRouter()

MOST_SHOWN = 20  # submissions in each state


def review_page(request: Request) -> Response:
    """Show the submissions that need a decision, and the submission of the query's ``id`` in any state."""
    if identity(request) is None:
        return redirect_to_login(request, "/review")
    require(request, "review", maintainer=True)
    number = (request.query_params.get("id") or "").strip().removeprefix("#")
    chosen, status, problems = None, 200, []
    if number:
        try:
            chosen = details(request.app.state.engine, whole_number("id", number))
        except (QueryError, NotFoundError, DamagedError) as error:
            status = 422 if isinstance(error, QueryError) else 404
            problems.append(str(error))
    return _page(request, chosen, status, problems)


def findings_page(request: Request) -> Response:
    """Show what each finding means, and what a reviewer looks at. Everyone may read it."""
    return html(request, "findings.html", section="rules", findings=finding_guide.FINDINGS)


def _page(request: Request, chosen: Details | None, status: int, problems: list[str]) -> Response:
    engine = request.app.state.engine
    waiting = {}
    damaged: list[int] = []
    for state in ("flagged", "failed", "held"):
        # A result that waits for a decision must not be hidden by newer ones. Failures are never decided, so that old
        # ones would hide the new.
        page = list_submissions(engine, state=state, limit=MOST_SHOWN, oldest_first=state != "failed")
        damaged += page.damaged
        found = []
        for line in page.lines:
            try:
                found.append(details(engine, line.id))
            except (DamagedError, NotFoundError):
                damaged.append(line.id)
        waiting[state] = found, page.total
    return form_page(request, "review.html", status, problems, chosen=chosen, waiting=waiting, damaged=damaged)


def decision(request: Request, form: FormData) -> Response:
    """Accept or reject a result."""
    caller = require(request, "review", maintainer=True)
    engine = request.app.state.engine
    try:
        id = whole_number("id", field(form, "id"))
        answer = field(form, "decision")
        if answer not in ("accept", "reject"):
            raise QueryError("decision: must be accept or reject; press one of the buttons of the form")
        decide(engine, id, caller.name, accept=answer == "accept", reason=field(form, "reason"))
    except NotFoundError as error:
        return _page(request, None, 404, [str(error)])
    except (QueryError, SubmissionError) as error:
        return _page(request, None, 422, str(error).split("\n"))
    return redirect(request, f"/submissions/{id}")


def retry(request: Request, form: FormData) -> Response:
    """Queue a failed verification again, or one with a failed run."""
    caller = require(request, "review", maintainer=True)
    try:
        id = whole_number("id", field(form, "id"))
        queue.retry(request.app.state.engine, id, account_id=caller.account_id)
    except (QueryError, NotFoundError) as error:
        return _page(request, None, 422 if isinstance(error, QueryError) else 404, [str(error)])
    return redirect(request, f"/submissions/{id}")


router.add_route("/review", review_page, methods=["GET"])
router.add_route("/review/findings", findings_page, methods=["GET"])
router.add_route("/review/decision", form_endpoint(decision), methods=["POST"])
router.add_route("/review/retry", form_endpoint(retry), methods=["POST"])
