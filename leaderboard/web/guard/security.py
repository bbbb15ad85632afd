"""The outermost layer of the application: limits of size and rate for requests, security headers for responses.

The headers allow scripts and styles only as files of this server, and forbid frames and guessed content types.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leaderboard.text_safety import shown
from leaderboard.web.guard.errors import respond_with_error, route_path
from leaderboard.web.guard.identity import cookie_name
from leaderboard.web.guard.limits import spend
from leaderboard.web.guard.settings import Settings

_FREE_SECONDS = 10.0  # in which a body may be slower than the slowest rate
_HEALTH = "/api/v1/health"
_FORM_OVERHEAD = 64 * 1024  # bytes that a form adds to its archive
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
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With no-referrer, browsers would send `Origin: null` with the board's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
log = logging.getLogger(__name__)


class Guard:
    """The outermost ASGI layer of the application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the response of GET without its body
            scope["method"] = "GET"
            send = _without_body(send)
        request = Request(scope, receive)
        response = _Response(request, self.settings, send)
        limit = self._body_limit(request)
        try:
            spend(request, "requests")
            _require_host(request, self.settings)
            _require_length(request.headers, limit)
            await self.app(scope, _limited(receive, limit, self._body_seconds(request)), response)
        except HTTPException as error:
            await response.send_error(error.status_code, str(error.detail), dict(error.headers or {}))
        except ClientDisconnect:
            log.info("a client disconnected before its request was complete")
        except Exception:
            log.exception("%s %s", shown(request.method), shown(route_path(scope), 200))
            if response.started:
                raise
            await response.send_error(500, "an error of the server; tell the maintainers when it happened")

    def _body_limit(self, request: Request) -> int:
        return self.settings.upload_bytes + _FORM_OVERHEAD if _uploads(request) else self.settings.form_bytes

    def _body_seconds(self, request: Request) -> Callable[[int], float]:
        """Return a function from the bytes that have arrived to the seconds in which more must arrive."""
        most = self.settings.upload_seconds if _uploads(request) else self.settings.form_seconds
        return lambda read: min(most, _FREE_SECONDS + read / self.settings.slowest_bytes)


class _Response:
    """Sends a response with the headers of every response."""

    def __init__(self, request: Request, settings: Settings, send: Send) -> None:
        self.request, self.settings, self.send = request, settings, send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._add(MutableHeaders(scope=message))
        await self.send(message)

    async def send_error(self, status: int, problem: str, headers: dict[str, str] | None = None) -> None:
        response = await run_in_threadpool(respond_with_error, self.request, status, [problem], headers)
        await response(self.request.scope, self.request.receive, self)

    def _add(self, headers: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        providers = "".join(f" {provider.origin}" for provider in self.settings.providers)
        # Chromium also asks this for the redirect that follows a form.
        policy = _CONTENT_SECURITY_POLICY.replace("form-action 'self'", f"form-action 'self'{providers}")
        headers.setdefault("content-security-policy", policy)
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
            name = cookie_name(self.request, "visit")
            headers.append("set-cookie", f"{name}={visit}; HttpOnly; Max-Age=86400; Path=/; SameSite=Lax{secure}")


def _require_length(headers: Headers, limit: int) -> None:
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise HTTPException(400, "Content-Length: must be a number of bytes; correct the header")
    if int(text) > limit:
        raise _too_large(limit)


def _uploads(request: Request) -> bool:
    return request.method == "POST" and route_path(request.scope) in ("/api/v1/submissions", "/submit")


def _require_host(request: Request, settings: Settings) -> None:
    """Refuse requests to a host that is not the board's: a page of another site may have sent the browser here."""
    known = settings.public_hosts
    if known and request.headers.get("host", "").lower() not in known:
        if route_path(request.scope) == _HEALTH:  # a proxy asks by address
            return
        raise HTTPException(421, f"Host: this board is at {settings.public_url}; use this address")


def _limited(receive: Receive, limit: int, seconds: Callable[[int], float]) -> Receive:
    """Limit the bytes that are read from a body, also without a Content-Length, and the time in which they arrive."""
    read = 0
    complete = False
    start: float | None = None  # of reading, because an upload can wait for its place

    async def receive_some() -> Message:
        nonlocal read, complete, start
        if complete:
            return await receive()  # waits for the client to disconnect
        start = time.monotonic() if start is None else start
        allowed = seconds(read)
        try:
            async with asyncio.timeout(start + allowed - time.monotonic()):
                message = await receive()
        except TimeoutError as error:
            problem = f"{read:,} bytes of the body arrived in {allowed:g} s, and not the rest; try again"
            raise HTTPException(408, problem, headers={"Connection": "close"}) from error
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if read > limit:
                raise _too_large(limit)
        return message

    return receive_some


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body must have at most {limit:,} bytes; send less")


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
