"""What becomes of errors: a status, and the problems in words, as JSON for programs or as a page for people."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from leaderboard.errors import AccountError, ConflictError, NotFoundError, SubmissionError, TooManyError
from leaderboard.text_rules import printable, storable
from leaderboard.web import pages
from leaderboard.web.limits import too_many
from leaderboard.web.paths import is_api

BUSY_SECONDS = 5
_TITLES = {
    400: "This request cannot be read",
    401: "Log in first",
    403: "Not allowed",
    404: "There is nothing here",
    405: "This cannot be done here",
    408: "It took too long to arrive",
    409: "Something stands against it",
    413: "Too large",
    415: "Not a format that is read here",
    422: "Not like this",
    429: "Too many requests",
    500: "A mistake of this server",
    503: "The database is busy",
}
log = logging.getLogger(__name__)


def respond_with_error(
    request: Request, status: int, problems: Sequence[str], headers: dict[str, str] | None = None
) -> Response:
    """An error, as JSON for programs and as a page for people."""
    title = _TITLES.get(status, f"Error {status}")
    if is_api(request.scope):
        detail = "\n".join(problems) or title
        return JSONResponse({"detail": detail, "problems": list(problems)}, status, headers)
    if status in (401, 429) or status >= 500:
        # Nobody is looked up for these: the database may be what failed, and a token that is none stays one.
        request.state.identity = getattr(request.state, "identity", None)
    try:
        response = pages.error_page(request, status, title, problems)
    except Exception:
        log.exception("the page of an error cannot be made")
        response = PlainTextResponse("\n".join((title, *problems)), status)
    response.headers.update(headers or {})
    return response


def handle_errors(app: FastAPI) -> None:
    """Give each kind of error its status and its words."""

    def http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_allowed(request))
        return respond_with_error(request, error.status_code, [str(error.detail)], headers)

    def invalid(request: Request, error: RequestValidationError) -> Response:
        return respond_with_error(request, 422, [_validation_problem(one) for one in error.errors()])

    def submission(request: Request, error: SubmissionError) -> Response:
        return respond_with_error(request, 422, error.problems)

    def account(request: Request, error: AccountError) -> Response:
        return respond_with_error(request, 422, [str(error)])

    def not_found(request: Request, error: NotFoundError) -> Response:
        return respond_with_error(request, 404, [str(error)])

    def conflict(request: Request, error: ConflictError) -> Response:
        return respond_with_error(request, 409, [str(error)])

    def often(request: Request, error: TooManyError) -> Response:
        headers = too_many(error.seconds).headers
        return respond_with_error(request, 429, [str(error)], dict(headers or {}))

    def busy(request: Request, error: Exception) -> Response:
        log.warning("the database does not answer: %s", getattr(error, "orig", None) or error)
        problem = f"the database does not answer at the moment; try again in {BUSY_SECONDS} s"
        return respond_with_error(request, 503, [problem], {"Retry-After": str(BUSY_SECONDS)})

    for kind, handler in (
        (HTTPException, http),
        (RequestValidationError, invalid),
        (SubmissionError, submission),
        (AccountError, account),
        (NotFoundError, not_found),
        (ConflictError, conflict),
        (TooManyError, often),
        (OperationalError, busy),
        (InterfaceError, busy),
        (PoolTimeoutError, busy),
    ):
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]


def _allowed(request: Request) -> list[str]:
    # A route knows its own methods alone, and several routes may share a path.
    found = []
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] == Match.FULL for route in request.app.router.routes):
            found += ["GET", "HEAD"] if method == "GET" else [method]
    return found


def _validation_problem(error: dict[str, object]) -> str:
    # What was sent is not repeated: it may be what no answer can be written with.
    place = error.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, tuple | list) else "request"
    return printable(storable(f"{where}: {error.get('msg', 'not valid')}", 300))
