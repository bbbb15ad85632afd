"""The submissions: as they came in, and one of them with all that is known about it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Engine, func, select
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.database import SUBMISSION_STATES, Submission
from leaderboard.engine import reading
from leaderboard.errors import NotFoundError
from leaderboard.recent import recent
from leaderboard.text_rules import shown
from leaderboard.web.pages.asked import PAGE_LINES, AskedError, whole_number
from leaderboard.web.pages.boards import COLUMNS
from leaderboard.web.pages.described import describe, state_of
from leaderboard.web.pages.render import error_page, html, remembered, text
from leaderboard.web.pages.shared import shared

router = APIRouter()

WAITING = ("queued", "running")  # of these, what the page shows changes without an event


def all_submissions(request: Request) -> Response:
    """The submissions that came last, of one state or of all."""
    query = request.query_params
    try:
        state = query.get("state") or None
        if state is not None and state not in SUBMISSION_STATES:
            raise AskedError(f"state={shown(state)}: must be one of {', '.join(SUBMISSION_STATES)}; mend the address")
        page = whole_number("page", query["page"]) if query.get("page") else 1
    except AskedError as error:
        return error_page(request, 400, "This address asks for what there is not", [str(error)])
    offset = min((page - 1) * PAGE_LINES, 2**31 - 1)
    engine = shared(request).engine
    lines, total = recent(engine, state=state, limit=PAGE_LINES, offset=offset)

    def address(number: int) -> str:
        return f"/submissions?{f'state={state}&' if state else ''}page={number}"

    return html(
        request,
        "submissions.html",
        section="submissions",
        lines=lines,
        total=total,
        state=state,
        states=SUBMISSION_STATES,
        by_state=_by_state(engine),
        page=page,
        pages=max(1, -(-total // PAGE_LINES)),
        page_address=address,
        waiting=any(line.state in WAITING for line in lines),
    )


def _by_state(engine: Engine) -> dict[str, int]:
    with reading(engine) as session:
        counted = session.execute(select(Submission.state, func.count()).group_by(Submission.state))
        return {row[0]: row[1] for row in counted}


def submission(request: Request) -> Response:
    """All that is known about one submission."""
    common = shared(request)
    try:
        id = whole_number("submission", request.path_params["id"])
        state = state_of(common.engine, id)
        if state is None:
            raise NotFoundError(f"submission {id}: there is none of this number; the list of submissions has them all")
    except (AskedError, NotFoundError) as error:
        return error_page(request, 404, "There is no such submission", [str(error)])
    context: dict[str, Any] = {"section": "submissions", "columns": COLUMNS}
    if state[0] in WAITING:
        return html(request, "submission.html", it=describe(common, id), live=3, **context)
    # Its place depends on the others of its board.
    version = (state[1], common.versions.board())
    return remembered(
        request,
        ("submission", id),
        version,
        lambda: text(request, "submission.html", it=describe(common, id), live=0, **context),
    )


router.add_route("/submissions", all_submissions, methods=["GET"], include_in_schema=False)
router.add_route("/submissions/{id}", submission, methods=["GET"], include_in_schema=False)
