"""The settings of a board's operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

import httpx2

from leaderboard.submission.zip_archive import MAXIMUM_ARCHIVE_BYTES
from leaderboard.web.guard.providers import Provider

_POSITIVE = (
    *("session_hours", "upload_bytes", "form_bytes", "upload_seconds", "form_seconds", "slowest_bytes"),
    *("upload_wait_seconds", "submissions_per_day"),
)
_COUNTS = (
    *("uploads_at_once", "uploads_per_account", "uploads_per_address"),
    *("registrations_per_day", "waiting_per_account", "waiting_per_address"),
)
Registration = Literal["open", "closed"]


@dataclass(frozen=True)
class Rate:
    """A rate limit: ``burst`` requests at once, ``per_minute`` in the long run; 0 per minute means no limit."""

    per_minute: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_minute < 0 or self.burst < 1:
            raise ValueError(f"{self}: must be at least 0 per minute (0: no limit) and a burst of at least 1")


@dataclass(frozen=True)
class Settings:
    """The settings of a board's operator. Rate limits count per account or per client address.

    Attributes:
        title: title of the pages.
        public_url: address of the board's front page, such as https://board.example. Requests to other hosts are then
            refused. None if it is not known: no page shows an address then, because a request can claim any.
        https: whether browsers reach the board by HTTPS. Cookies are then sent only by HTTPS, and HSTS is on.
        registration: open if everyone can make an account, closed if only maintainers make accounts.
        session_hours: hours after which a browser must log in again.
        registrations_per_day: maximum number of new accounts of a client address in 24 hours.
        submissions_per_day: maximum number of new submissions of an account in 24 hours, also of a maintainer.
        waiting_per_account: maximum number of submissions of an account in the queue.
        waiting_per_address: maximum number of submissions of a client address in the queue.
        upload_bytes: maximum size of a submission's archive.
        form_bytes: maximum size of any other request.
        upload_seconds: maximum time of an upload.
        form_seconds: maximum time of the body of any other request.
        slowest_bytes: bytes that a body must have a second, after its first ten seconds.
        uploads_at_once: number of uploads, and of downloads, whose archives may be in memory at once; others wait.
        uploads_per_account: of these, of one account.
        uploads_per_address: of these, of one client address.
        upload_wait_seconds: maximum time that an upload or a download waits for others.
        requests: all requests of a client address.
        changes: requests of an account that change something.
        archives: archives that an account sends; also a refused one is read and checked.
        log_ins: attempts of a client address with invalid tokens.
        sign_ins: beginnings of a sign-in with another provider, of a client address.
        providers: other providers with which people sign in. They need the public address.
        registrations: registrations of a client address.
        exports: exports of whole boards by a client address.
        downloads: downloads of a submission's files or audits by a client address.
    """

    title: str = "ALMA leaderboard"
    public_url: str | None = None
    https: bool = False
    registration: Registration = "closed"
    session_hours: float = 12.0
    registrations_per_day: int = 20
    submissions_per_day: int = 50
    waiting_per_account: int = 10
    waiting_per_address: int = 40
    upload_bytes: int = MAXIMUM_ARCHIVE_BYTES
    form_bytes: int = 64 * 1024
    upload_seconds: float = 120.0
    form_seconds: float = 20.0
    slowest_bytes: float = 16 * 1024.0
    uploads_at_once: int = 8
    uploads_per_account: int = 1
    uploads_per_address: int = 2
    upload_wait_seconds: float = 25.0
    requests: Rate = field(default=Rate(3_000, 600))
    changes: Rate = field(default=Rate(120, 60))
    archives: Rate = field(default=Rate(10, 20))
    log_ins: Rate = field(default=Rate(30, 30))
    sign_ins: Rate = field(default=Rate(60, 60))
    providers: tuple[Provider, ...] = ()
    registrations: Rate = field(default=Rate(2, 20))  # a class may share one address
    exports: Rate = field(default=Rate(30, 10))
    downloads: Rate = field(default=Rate(120, 60))

    def __post_init__(self) -> None:
        if self.registration not in get_args(Registration):
            raise ValueError(f"registration={self.registration!r}: must be open or closed; use registration='closed'")
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be more than 0; leave it out for the default")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1; use {name}=1")
        if self.providers and self.public_url is None:
            raise ValueError("public_url=None: providers send browsers back to it; give the address of the board")
        if self.public_url is not None:
            address_of(self.public_url)  # raises

    @property
    def public_hosts(self) -> frozenset[str]:
        """The values of ``Host`` of requests to the public address, in lower case; empty if it is not known."""
        if self.public_url is None:
            return frozenset()
        scheme, host = address_of(self.public_url)
        return frozenset((host, f"{host}:{443 if scheme == 'https' else 80}"))  # some proxies add the default port


def address_of(url: str) -> tuple[str, str]:
    """Return the scheme and the host with its port, as a browser sends them, of the address of a board or of an origin.

    >>> address_of("https://B\u00fccher.example:443"), address_of("http://[::1]:8000")
    (('https', 'xn--bcher-kva.example'), ('http', '[::1]:8000'))

    Raises:
        ValueError: the text is not an http or https address.
    """
    try:
        parts = urlsplit(url)
        named, _ = parts.hostname, parts.port  # both can raise
        sent = httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ValueError(f"public_url={url!r}: {error}; write it like https://board.example") from error
    if parts.scheme not in ("http", "https") or not named or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"public_url={url!r}: not an address of a board; write it like https://board.example")
    return sent.scheme, sent.netloc.decode("ascii").lower()
