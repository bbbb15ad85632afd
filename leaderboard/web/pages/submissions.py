"""The list of submissions, and the page of one submission."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Engine, func, select
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.board.listing import list_submissions
from leaderboard.board.submissions import no_submission
from leaderboard.database.engine import reading
from leaderboard.database.tables import LARGEST_ID, SUBMISSION_STATES, WAITING, Submission
from leaderboard.errors import NotFoundError
from leaderboard.text_safety import shown
from leaderboard.web.pages.boards import COLUMNS
from leaderboard.web.view.page_state import page_state
from leaderboard.web.view.render import cached_html, error_page, html, render
from leaderboard.web.view.submission_view import state_and_event, submission_view
from leaderboard.web.view.urls import PAGE_LINES, QueryError, whole_number

router = APIRouter()


def all_submissions(request: Request) -> Response:
    """List the submissions in one state or in all states, the newest first."""
    query = request.query_params
    state = query.get("state") or None
    if state is not None and state not in SUBMISSION_STATES:
        raise QueryError(f"state={shown(state)}: must be one of {', '.join(SUBMISSION_STATES)}; correct the address")
    number = whole_number("page", query["page"]) if query.get("page") else 1
    engine = page_state(request).engine
    page = list_submissions(engine, state=state, limit=PAGE_LINES, offset=min((number - 1) * PAGE_LINES, LARGEST_ID))
    return html(
        request,
        "submissions.html",
        section="submissions",
        page=page,
        state=state,
        states=SUBMISSION_STATES,
        by_state=_by_state(engine),
        number=number,
        pages=max(1, -(-page.total // PAGE_LINES)),
        page_url=lambda number: f"/submissions?{f'state={state}&' if state else ''}page={number}",
        waiting=any(line.state in WAITING for line in page.lines),
    )


def _by_state(engine: Engine) -> dict[str, int]:
    with reading(engine) as session:
        counted = session.execute(select(Submission.state, func.count()).group_by(Submission.state))
        return {row[0]: row[1] for row in counted}


def submission(request: Request) -> Response:
    """Show one submission."""
    shared = page_state(request)
    try:
        id = whole_number("submission", request.path_params["id"])
        found = state_and_event(shared.engine, id)
        if found is None:
            raise no_submission(id)
    except (QueryError, NotFoundError) as error:
        return error_page(request, 404, "Submission not found", [str(error)])
    state, last_event = found

    def context(live: int) -> dict[str, Any]:
        view = submission_view(shared, id)
        return {"section": "submissions", "columns": COLUMNS, "view": view, "live": live}

    if state in WAITING:  # its progress changes without an event
        return html(request, "submission.html", **context(live=3))
    return cached_html(
        request,
        ("submission", id),
        (last_event, shared.versions.board()),  # of the board, because the page shows the place on the board
        lambda: render(request, "submission.html", **context(live=0)),
    )


router.add_route("/submissions", all_submissions, methods=["GET"])
router.add_route("/submissions/{id}", submission, methods=["GET"])
