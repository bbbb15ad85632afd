"""For maintainers: flagged results and failed verifications, and what is decided about them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from leaderboard import queue
from leaderboard.details import Details, details
from leaderboard.errors import NotFoundError, SubmissionError
from leaderboard.recent import recent
from leaderboard.review import decide
from leaderboard.web.identity import Identity, csrf_token, identity
from leaderboard.web.pages.asked import AskedError, whole_number
from leaderboard.web.pages.forms import field, go, log_in_first, posted, require
from leaderboard.web.pages.render import html

router = APIRouter()

AT_ONCE = 20  # of each kind on the page


def review_page(request: Request) -> Response:
    """What waits for a maintainer; or one submission by its number, whatever its state."""
    if identity(request) is None:
        return log_in_first(request, "/review")
    caller = require(request, "review", maintainer=True)
    number = (request.query_params.get("id") or "").strip().removeprefix("#")
    chosen, problems = None, []
    if number:
        try:
            chosen = details(request.app.state.engine, whole_number("id", number))
        except (AskedError, NotFoundError) as error:
            problems.append(str(error))
    return _page(request, caller, chosen, 404 if problems else 200, problems)


def _page(
    request: Request, caller: Identity, chosen: Details | None, status: int = 200, problems: list[str] | None = None
) -> Response:
    engine = request.app.state.engine
    waiting = {}
    for state in ("flagged", "failed"):
        lines, total = recent(engine, state=state, limit=AT_ONCE)
        waiting[state] = [details(engine, line.id) for line in lines], total
    return html(
        request,
        "review.html",
        status,
        section="account",
        csrf=csrf_token(request),
        caller=caller,
        chosen=chosen,
        waiting=waiting,
        wrong=problems or [],
    )


def decision(request: Request, form: FormData) -> Response:
    """Accept a result, or reject it."""
    caller = require(request, "review", maintainer=True)
    engine = request.app.state.engine
    try:
        id = whole_number("id", field(form, "id"))
        answer = field(form, "decision")
        if answer not in ("accept", "reject"):
            raise AskedError("decision: must be accept or reject; press one of the form's buttons")
        decide(engine, id, caller.name, accept=answer == "accept", reason=field(form, "reason"))
    except NotFoundError as error:
        return _page(request, caller, None, 404, [str(error)])
    except (AskedError, SubmissionError) as error:
        return _page(request, caller, None, 422, str(error).split("\n"))
    return go(request, f"/submissions/{id}")


def again(request: Request, form: FormData) -> Response:
    """Queue a failed verification again."""
    caller = require(request, "review", maintainer=True)
    try:
        id = whole_number("id", field(form, "id"))
        queue.retry(request.app.state.engine, id, account_id=caller.account_id)
    except (AskedError, NotFoundError) as error:
        return _page(request, caller, None, 404, [str(error)])
    return go(request, f"/submissions/{id}")


router.add_route("/review", review_page, methods=["GET"], include_in_schema=False)
router.add_route("/review/decision", posted(decision), methods=["POST"], include_in_schema=False)
router.add_route("/review/retry", posted(again), methods=["POST"], include_in_schema=False)
