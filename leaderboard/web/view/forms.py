"""Forms: read, refused where they come from another site, and answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from leaderboard.web.identity import Identity, check_csrf, identity

Handler = Callable[[Request, FormData], Response]


def posted(handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for a form without files; what it does may wait for the database."""

    async def endpoint(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=30) as form:
            return await run_in_threadpool(_checked, handle, request, form)

    return endpoint


def _checked(handle: Handler, request: Request, form: FormData) -> Response:
    check_csrf(request, field(form, "csrf"))
    return handle(request, form)


def field(form: FormData, name: str) -> str:
    """A field's text; empty where there is none."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


def go(request: Request, address: str) -> RedirectResponse:
    """To another page, after a form or instead of a page."""
    return RedirectResponse(request.scope.get("root_path", "").rstrip("/") + address, 303)


def log_in_first(request: Request, address: str) -> RedirectResponse:
    """To the page to log in, and from there to where one wanted to go."""
    return go(request, f"/login?next={quote(address, safe='')}")


def require(request: Request, scope: str, *, maintainer: bool = False) -> Identity:
    """Who sends a form.

    Raises:
        HTTPException: 401, nobody that is known; 403, not allowed to.
    """
    caller = identity(request)
    if caller is None:
        raise HTTPException(401, "your session is over; log in and send the form again")
    if maintainer and not caller.is_maintainer:
        raise HTTPException(403, f"account {caller.name} is no maintainer's; ask a maintainer of the board")
    if scope not in caller.scopes:
        raise HTTPException(403, f"your token has not the scope {scope}; log in with one that has it")
    return caller
