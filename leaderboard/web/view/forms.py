"""Form requests: their endpoints, their fields, and redirects after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from leaderboard.web.guard.errors import root_path
from leaderboard.web.guard.identity import check_csrf, csrf_token
from leaderboard.web.view.render import html

Handler = Callable[[Request, FormData], Response]


def form_endpoint(handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for a form without files. The handler runs in a thread, so it may use the database."""

    async def endpoint(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=30) as form:
            return await run_in_threadpool(_checked, handle, request, form)

    return endpoint


def _checked(handle: Handler, request: Request, form: FormData) -> Response:
    check_csrf(request, field(form, "csrf"))
    return handle(request, form)


def field(form: FormData, name: str) -> str:
    """Return the text of a field; empty if the field is missing."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


def form_page(
    request: Request, template: str, status: int = 200, problems: Sequence[str] = (), **context: Any
) -> Response:
    """Respond with a page about the account that has forms, and show the problems of the form that was sent."""
    csrf = csrf_token(request)
    return html(request, template, status, section="account", csrf=csrf, problems=problems, **context)


def redirect(request: Request, url: str, status: int = 303) -> RedirectResponse:
    """Redirect to another page of the board."""
    return RedirectResponse(root_path(request.scope) + url, status)


def redirect_to_login(request: Request, url: str) -> RedirectResponse:
    """Redirect to the login page, which leads to the URL after the login."""
    return redirect(request, f"/login?next={quote(url, safe='')}")
