"""The settings of a board's operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from leaderboard.submission.zip_archive import MAXIMUM_ARCHIVE_BYTES

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
        https: whether browsers reach the board by HTTPS. Cookies are then sent only by HTTPS, and HSTS is on.
        registration: open if everyone can make an account, closed if only maintainers make accounts.
        session_hours: hours after which a browser must log in again.
        submissions_per_day: maximum number of new submissions of an account in 24 hours, also of a maintainer.
        upload_bytes: maximum size of a submission's archive.
        form_bytes: maximum size of any other request.
        upload_seconds: maximum time of an upload.
        uploads_at_once: number of archives that may be in memory at the same time; other uploads wait.
        requests: all requests of a client address.
        changes: requests of an account that change something.
        log_ins: attempts of a client address with invalid tokens.
        registrations: registrations of a client address.
        exports: exports of whole boards by a client address.
        downloads: downloads of a submission's files or audits by a client address.
    """

    title: str = "ALMA leaderboard"
    https: bool = False
    registration: Registration = "closed"
    session_hours: float = 12.0
    submissions_per_day: int = 50
    upload_bytes: int = MAXIMUM_ARCHIVE_BYTES
    form_bytes: int = 64 * 1024
    upload_seconds: float = 120.0
    uploads_at_once: int = 4
    requests: Rate = field(default=Rate(3_000, 600))
    changes: Rate = field(default=Rate(120, 60))
    log_ins: Rate = field(default=Rate(30, 30))
    registrations: Rate = field(default=Rate(2, 60))  # a class may share one address
    exports: Rate = field(default=Rate(30, 10))
    downloads: Rate = field(default=Rate(120, 60))

    def __post_init__(self) -> None:
        if self.registration not in get_args(Registration):
            raise ValueError(f"registration={self.registration!r}: must be open or closed; use registration='closed'")
        for name in ("session_hours", "submissions_per_day", "upload_bytes", "form_bytes", "upload_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be more than 0; leave it out for the default")
        if self.uploads_at_once < 1:
            raise ValueError(f"uploads_at_once={self.uploads_at_once}: must be at least 1; use uploads_at_once=1")
