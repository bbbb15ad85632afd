"""Responses to errors: a status and the problems, as JSON for programs or as a page for people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from leaderboard.errors import AccountError, ConflictError, DamagedError, NotFoundError, SubmissionError, TooManyError
from leaderboard.text_safety import printable, storable
from leaderboard.web.guard.limits import too_many

BUSY_SECONDS = 5
API = "/api/"
ErrorPage = Callable[[Request, int, str, Sequence[str]], Response]  # request, status, title, problems
_TITLES = {
    400: "Invalid request",
    401: "Log in first",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long",
    409: "Not possible now",
    413: "Too large",
    415: "Unsupported format",
    421: "Another address",
    422: "Invalid values",
    429: "Too many requests",
    500: "Server error",
    503: "The database is busy",
}
log = logging.getLogger(__name__)


def root_path(scope: Scope) -> str:
    """Return the prefix of ``--root-path``, without a slash at its end; empty if there is none."""
    prefix: str = scope.get("root_path", "").rstrip("/")
    return prefix


def route_path(scope: Scope) -> str:
    """Return the path of a request below the prefix of ``--root-path``."""
    path: str = scope["path"]
    root = root_path(scope)
    return path[len(root) :] if root and path.startswith(root + "/") else path


def respond_with_error(
    request: Request, status: int, problems: Sequence[str], headers: dict[str, str] | None = None
) -> Response:
    """Respond with JSON below ``/api/`` and with a page elsewhere. `handle_errors` sets how a page is rendered."""
    title = _TITLES.get(status, f"Error {status}")
    if route_path(request.scope).startswith(API):
        detail = "\n".join(problems) or title
        return JSONResponse({"detail": detail, "problems": list(problems)}, status, headers)
    if status in (401, 429) or status >= 500:
        # Do not look up the caller: the database may have failed, and an invalid token would raise again.
        request.state.identity = getattr(request.state, "identity", None)
    try:
        response: Response = request.app.state.error_page(request, status, title, problems)
    except Exception:
        log.exception("the error page cannot be rendered")
        response = PlainTextResponse("\n".join((title, *problems)), status)
    response.headers.update(headers or {})
    return response


def handle_errors(app: FastAPI, error_page: ErrorPage) -> None:
    """Register a handler for every kind of error; ``error_page`` renders an error as a page."""
    app.state.error_page = error_page

    def http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_allowed(request))
        return respond_with_error(request, error.status_code, [str(error.detail)], headers)

    def invalid(request: Request, error: RequestValidationError) -> Response:
        return respond_with_error(request, 422, [_validation_problem(one) for one in error.errors()])

    def known(status: int) -> Callable[[Request, Exception], Response]:
        def respond(request: Request, error: Exception) -> Response:
            return respond_with_error(request, status, getattr(error, "problems", [str(error)]))

        return respond

    def often(request: Request, error: TooManyError) -> Response:
        headers = too_many(error.seconds).headers
        return respond_with_error(request, 429, [str(error)], dict(headers or {}))

    def busy(request: Request, error: Exception) -> Response:
        log.warning("the database does not respond: %s", getattr(error, "orig", None) or error)
        problem = f"the database does not respond; try again in {BUSY_SECONDS} s"
        return respond_with_error(request, 503, [problem], {"Retry-After": str(BUSY_SECONDS)})

    for kind, handler in (
        (HTTPException, http),
        (RequestValidationError, invalid),
        (SubmissionError, known(422)),
        (AccountError, known(422)),
        (NotFoundError, known(404)),
        (DamagedError, known(409)),
        (ConflictError, known(409)),
        (TooManyError, often),
        (OperationalError, busy),
        (InterfaceError, busy),
        (PoolTimeoutError, busy),
    ):
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]


def _allowed(request: Request) -> list[str]:
    # A route knows only its own methods, and several routes may share a path.
    found = []
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] == Match.FULL for route in request.app.router.routes):
            found += ["GET", "HEAD"] if method == "GET" else [method]
    return found


def _validation_problem(error: dict[str, object]) -> str:
    # The value is not repeated, because it may contain what JSON or HTML cannot express.
    place = error.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, tuple | list) else "request"
    return printable(storable(f"{where}: {error.get('msg', 'not valid')}", 300))
