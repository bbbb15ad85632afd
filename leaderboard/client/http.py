"""Requests to a board's API: what is repeated, and what its errors become. `leaderboard.client` is what to use."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import quote

import httpx2

from agents.statistics import Interval
from alma_env import __version__
from leaderboard.accounts import AccountInfo
from leaderboard.database import METRICS
from leaderboard.errors import ConflictError, NotFoundError, RemoteError, SubmissionError, TooManyError
from leaderboard.standings import Standing
from leaderboard.text_rules import printable, shown
from leaderboard.tokens import NewToken, TokenInfo

FIRST_PAUSE_SECONDS = 0.5  # before something is repeated; doubled each time
LONGEST_PAUSE_SECONDS = 30.0  # also where the server asks for one
_TRY_LATER = (429, 503)  # which say that nothing was done
_ON_THE_WAY = (500, 502, 504)


class Remote:
    """A board's API, by HTTP."""

    def __init__(
        self, url: str, token: str | None, *, attempts: int, timeout: float, transport: httpx2.BaseTransport | None
    ) -> None:
        if attempts < 1 or timeout <= 0:
            raise ValueError(f"attempts={attempts}, timeout={timeout}: give 1 or more, and more than 0 seconds")
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError) as error:
            raise ValueError(f"url {shown(url)}: not a URL; write it like https://board.example.org") from error
        if parsed.userinfo:
            raise ValueError(
                "url: has a name or a password in it; take it out and write it like https://board.example.org"
            )
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"url {shown(url)}: not an address of the web; write it like https://board.example.org")
        self.url = url.rstrip("/")
        self._attempts = attempts
        headers = {"User-Agent": f"alma-env/{__version__}"}
        if token is not None:
            if not token.isascii() or not token.isprintable() or " " in token or not token:
                raise ValueError("token: not one of a board; copy it as it was shown, it begins with alma_")
            headers["Authorization"] = f"Bearer {token}"
        # Redirections are not followed: a token goes to the board that it is for and nowhere else.
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

    def get(self, path: str, params: Mapping[str, object] | None = None) -> httpx2.Response:
        """Read something."""
        return self.request("GET", path, params=params)

    def json(self, method: str, path: str, **options: Any) -> Any:
        """What a request is answered with, as JSON."""
        response = self.request(method, path, **options)
        try:
            return response.json()
        except ValueError as error:
            raise RemoteError(
                f"{self.url}: answers, but not as a board of alma-env does; give a board's URL"
            ) from error

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        repeat: bool = True,
        **options: Any,
    ) -> httpx2.Response:
        """Ask for something, again where the server is busy, and where the way to it fails if that is safe.

        Args:
            method: of HTTP.
            path: below ``/api/v1``.
            params: of the query; those that are None are left out.
            repeat: whether doing it twice does what doing it once does.
            options: of httpx2.

        Raises:
            AlmaError: what the server says, as one of `leaderboard.errors`.
        """
        query = {name: _plain(value) for name, value in (params or {}).items() if value is not None}
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
            try:
                response = self._http.request(method, quote(path.lstrip("/"), safe="/"), params=query, **options)
            except httpx2.TransportError as error:
                # Where no connection came about nothing was done.
                if last or not (repeat or isinstance(error, httpx2.ConnectError)):
                    raise RemoteError(
                        f"{self.url}: does not answer ({type(error).__name__}: {printable(str(error))}); see whether "
                        "the URL is right and the server runs, and try again"
                    ) from error
            else:
                if response.is_success:
                    return response
                asked = _seconds(response.headers.get("retry-after"))
                again = response.status_code in _TRY_LATER or (repeat and response.status_code in _ON_THE_WAY)
                if last or not again or (asked or 0.0) > LONGEST_PAUSE_SECONDS:
                    self._raise(response, asked)
                pause = max(pause, asked or 0.0)
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _raise(self, response: httpx2.Response, seconds: float | None) -> NoReturn:
        try:
            problems = [printable(str(problem)) for problem in response.json()["problems"]]
        except (ValueError, KeyError, TypeError):
            problems = []
        text = "\n".join(problems) or f"{self.url}: answers with the status {response.status_code}"
        match response.status_code:
            case 404 if problems:
                raise NotFoundError(text)
            case 409:
                raise ConflictError(text)
            case 422 if problems:
                raise SubmissionError(problems)
            case 429:
                raise TooManyError(text, seconds or 0.0)
            case status:
                raise RemoteError(text, status)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None


def moment(text: str) -> datetime:
    """A moment with its time zone."""
    return datetime.fromisoformat(text)


def _maybe_moment(text: str | None) -> datetime | None:
    return None if text is None else moment(text)


def standing(line: Mapping[str, Any]) -> Standing:
    """A line of the standings."""
    return Standing(
        **{
            **line,
            "authors": tuple(line["authors"]),
            "verified_at": moment(line["verified_at"]),
            **{metric: Interval(**line[metric]) for metric in METRICS},
        }
    )


def token(line: Mapping[str, Any]) -> TokenInfo:
    """What is known of a token."""
    moments = ("expires_at", "revoked_at", "last_used_at")
    return TokenInfo(
        line["id"],
        line["name"],
        tuple(line["scopes"]),
        moment(line["created_at"]),
        *(_maybe_moment(line[name]) for name in moments),
    )


def new_token(line: Mapping[str, Any]) -> NewToken:
    """A token as it is shown once."""
    return NewToken(line["id"], line["secret"], line["name"], tuple(line["scopes"]), _maybe_moment(line["expires_at"]))


def account(line: Mapping[str, Any]) -> AccountInfo:
    """What is known of an account."""
    return AccountInfo(
        line["id"], line["name"], line["role"], moment(line["created_at"]), _maybe_moment(line["disabled_at"])
    )
