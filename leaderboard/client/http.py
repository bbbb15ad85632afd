"""HTTP requests to a board's API: their repetition, their errors, and parsed responses."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from alma_env import __version__
from leaderboard.errors import ConflictError, NotFoundError, RemoteError, SubmissionError, TooManyError
from leaderboard.text_safety import printable, shown

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5  # before the first repetition; doubled before each later one
LONGEST_PAUSE_SECONDS = 30.0  # also the longest accepted Retry-After
_NOT_PROCESSED = (429, 503)  # statuses of requests that the server has not processed
_MAYBE_PROCESSED = (500, 502, 504)


class Remote:
    """HTTP connection to a board's API."""

    def __init__(
        self, url: str, token: str | None, *, attempts: int, timeout: float, transport: httpx2.BaseTransport | None
    ) -> None:
        if attempts < 1 or timeout <= 0:
            raise ValueError(f"attempts={attempts}, timeout={timeout}: must be at least 1 and more than 0 s")
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError) as error:
            raise ValueError(f"url={shown(url)}: must be a URL; write it like https://board.example.org") from error
        if parsed.userinfo:
            raise ValueError("url: must not contain a name or a password; write it like https://board.example.org")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"url={shown(url)}: must be an http or https URL; write it like https://board.example.org")
        self.url = url.rstrip("/")
        self._attempts = attempts
        headers = {"User-Agent": f"alma-env/{__version__}"}
        if token is not None:
            if not token.isascii() or not token.isprintable() or " " in token or not token:
                raise ValueError("token: not a token of a board; copy it as it was shown, it begins with alma_")
            headers["Authorization"] = f"Bearer {token}"
        # Do not follow redirects: a token must not go to another server.
        self._http = httpx2.Client(
            base_url=f"{self.url}/api/v1/",
            headers=headers,
            timeout=timeout,
            transport=transport,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def read(self, shape: type[T], method: str, path: str, **options: Any) -> T:
        """Send a request and parse the JSON of its response as a type, such as a dataclass.

        Raises:
            AlmaError: see `request`; also if the response is not of this type.
        """
        response = self.request(method, path, **options)
        try:
            return TypeAdapter(shape).validate_json(response.content)
        except ValidationError as error:
            raise RemoteError(
                f"{self.url}: the response is not that of a board of this version of alma-env; give the URL of a "
                "board, or install the board's version"
            ) from error

    def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, repeat: bool = True, **options: Any
    ) -> httpx2.Response:
        """Send a request. Repeat it if the server is busy, or if the connection fails and repeating is safe.

        Args:
            method: HTTP method.
            path: below ``/api/v1``.
            params: of the query; None values are left out.
            repeat: whether repeating is safe.
            options: of httpx2.

        Raises:
            AlmaError: the server's error, as one of `leaderboard.errors`.
        """
        query = {name: value for name, value in (params or {}).items() if value is not None}
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
            try:
                response = self._http.request(method, quote(path.lstrip("/"), safe="/"), params=query, **options)
            except httpx2.TransportError as error:
                # Without a connection the server has not processed the request.
                if last or not (repeat or isinstance(error, httpx2.ConnectError)):
                    raise RemoteError(
                        f"{self.url}: no response ({type(error).__name__}: {printable(str(error))}); check the URL, "
                        "check that the server runs, and try again"
                    ) from error
            else:
                if response.is_success:
                    return response
                retry_after = _seconds(response.headers.get("retry-after"))
                again = response.status_code in _NOT_PROCESSED or (repeat and response.status_code in _MAYBE_PROCESSED)
                if last or not again or (retry_after or 0.0) > LONGEST_PAUSE_SECONDS:
                    self._raise(response, retry_after)
                pause = max(pause, retry_after or 0.0)
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _raise(self, response: httpx2.Response, seconds: float | None) -> NoReturn:
        try:
            problems = [printable(str(problem)) for problem in response.json()["problems"]]
        except (ValueError, KeyError, TypeError):
            problems = []
        text = "\n".join(problems) or f"{self.url}: response with status {response.status_code}{_remedy(response)}"
        match response.status_code:
            case 404 if problems:
                raise NotFoundError(text)
            case 401 if problems:
                raise RemoteError(f"{text} ({_TOKEN})", 401)
            case 409:
                raise ConflictError(text)
            case 422 if problems:
                raise SubmissionError(problems)
            case 429:
                raise TooManyError(text, seconds or 0.0)
            case status:
                raise RemoteError(text, status)


_TOKEN = "make a token on the page of your account, then set ALMA_LEADERBOARD_TOKEN or give --token"


def _remedy(response: httpx2.Response) -> str:
    """Return what to do about a response that is not of a board, or of one that does not say it."""
    location = response.headers.get("location")
    if response.is_redirect and location is not None:
        with suppress(httpx2.InvalidURL):
            location = str(response.url.join(location))
        there = printable(location.partition("/api/v1")[0])[:200]
        return f", a redirect, which could give your token to another server; if you trust it, give the URL {there}"
    match response.status_code:
        case 401:
            return f"; {_TOKEN}"
        case 502 | 504:
            return ": the proxy has no answer of the board; try again later"
        case 503:
            return ": the board is busy; try again later"
    return "; check that this is the URL of a board"


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
