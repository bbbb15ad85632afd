"""Requests straight to an ASGI application, with headers and bodies that no HTTP client would send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Body = Callable[[], Awaitable[dict[str, Any]]]


async def call(
    app: Any, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], body: Body | bytes, client: str
) -> tuple[int, dict[str, str], str]:
    """Send a request, and return the status, the headers and the text of the response."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": (client, 1234),
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": list(headers),
        "state": {},
    }
    sent: list[dict[str, Any]] = []
    whole = body if isinstance(body, bytes) else b""
    parts = iter([{"type": "http.request", "body": whole, "more_body": False}])

    async def receive() -> dict[str, Any]:
        if not isinstance(body, bytes):
            return await body()
        part = next(parts, None)
        if part is None:
            await asyncio.sleep(3600)
        assert part is not None
        return part

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status = next(message["status"] for message in sent if message["type"] == "http.response.start")
    found = next(message["headers"] for message in sent if message["type"] == "http.response.start")
    text = b"".join(message.get("body", b"") for message in sent).decode("utf-8", "replace")
    return status, {name.decode().lower(): value.decode("latin-1") for name, value in found}, text


def request(
    app: Any,
    method: str,
    path: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
    body: Body | bytes = b"",
    client: str = "192.0.2.99",
) -> tuple[int, dict[str, str], str]:
    """Send a request without an event loop of one's own."""
    return asyncio.run(call(app, method, path, headers, body, client))
