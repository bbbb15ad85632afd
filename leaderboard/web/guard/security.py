"""What every request passes: limits of size and rate on the way in, security headers on the way out.

Scripts and styles come from this server alone, and none stand in a page; nobody frames a page; nothing guesses types.
"""

from __future__ import annotations

import logging

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leaderboard.text_rules import shown
from leaderboard.web.errors import respond_with_error
from leaderboard.web.identity import visit_cookie
from leaderboard.web.limits import spend
from leaderboard.web.paths import route_path
from leaderboard.web.settings import Settings

_FORM_OVERHEAD = 64 * 1024  # what a form adds to the archive in it
_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it browsers send `Origin: null` with the board's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
log = logging.getLogger(__name__)


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # what GET would answer, without the body
            scope["method"] = "GET"
            send = _without_body(send)
        request = Request(scope, receive)
        answer = _Answer(request, self.settings, send)
        limit = self._body_limit(request)
        try:
            spend(request, "requests")
            _require_length(request.headers, limit)
            await self.app(scope, _limited(receive, limit), answer)
        except HTTPException as error:
            await answer.with_error(error.status_code, str(error.detail), dict(error.headers or {}))
        except ClientDisconnect:
            log.info("a client went away before its request had arrived")
        except Exception:
            log.exception("%s %s", shown(request.method), shown(route_path(scope), 200))
            if answer.begun:
                raise
            await answer.with_error(500, "this is not your mistake; tell the maintainers when it happened")

    def _body_limit(self, request: Request) -> int:
        uploads = request.method == "POST" and route_path(request.scope) in ("/api/v1/submissions", "/submit")
        return self.settings.upload_bytes + _FORM_OVERHEAD if uploads else self.settings.form_bytes


class _Answer:
    """Sends the answer, with the headers that every answer has."""

    def __init__(self, request: Request, settings: Settings, send: Send) -> None:
        self.request, self.settings, self.send = request, settings, send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self._add(MutableHeaders(scope=message))
        await self.send(message)

    async def with_error(self, status: int, problem: str, headers: dict[str, str] | None = None) -> None:
        response = await run_in_threadpool(respond_with_error, self.request, status, [problem], headers)
        await response(self.request.scope, self.request.receive, self)

    def _add(self, headers: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if self.settings.https:
            headers.setdefault("strict-transport-security", "max-age=31536000")
        if route_path(self.request.scope).startswith("/static/"):
            headers.setdefault("cache-control", "public, max-age=3600")
        else:
            known = {"cookie", "authorization"} & set(self.request.headers)
            headers.setdefault("cache-control", "private, no-store" if known else "no-cache")
            headers.add_vary_header("Cookie")
            headers.add_vary_header("Authorization")
        visit = self.request.scope.get("state", {}).get("visit")
        if visit:
            secure = "; Secure" if self.settings.https else ""
            headers.append(
                "set-cookie",
                f"{visit_cookie(self.request)}={visit}; HttpOnly; Max-Age=86400; Path=/; SameSite=Lax{secure}",
            )


def _require_length(headers: Headers, limit: int) -> None:
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise HTTPException(400, "Content-Length is no number of bytes")
    if int(text) > limit:
        raise _too_large(limit)


def _limited(receive: Receive, limit: int) -> Receive:
    """Of a body that does not say its length, too, no more is read than may be."""
    read = 0

    async def receive_some() -> Message:
        nonlocal read
        message = await receive()
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            if read > limit:
                raise _too_large(limit)
        return message

    return receive_some


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"larger than {limit:,} bytes, the most that is read here; send less")


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
