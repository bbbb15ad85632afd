"""What the operator of a board decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from leaderboard.archive import MAXIMUM_ARCHIVE_BYTES

Registration = Literal["open", "closed"]


@dataclass(frozen=True)
class Rate:
    """How much is let through: ``burst`` at once, and ``per_minute`` in the long run; 0 per minute means no limit."""

    per_minute: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_minute < 0 or self.burst < 1:
            raise ValueError(f"{self}: give 0 or more per minute (0: no limit) and a burst of 1 or more")


UNLIMITED = Rate(0, 1)


@dataclass(frozen=True)
class Settings:
    """What the operator of a board decides.

    Attributes:
        title: of the pages.
        https: whether the board is reached by HTTPS: cookies are then sent by it alone, and browsers told to stay.
        registration: whether everyone makes an account of their own, or maintainers make them.
        session_hours: after which a browser has to log in again.
        submissions_per_day: new ones of an account in 24 hours; maintainers too.
        upload_bytes: of a submission's archive.
        form_bytes: of any other request.
        upload_seconds: in which an archive has to arrive.
        uploads_at_once: archives that are in memory at a time; others wait.
        requests: of a client address.
        changes: requests that write, of an account.
        log_ins: attempts with tokens that open nothing, of a client address.
        registrations: of a client address.
        exports: of whole boards, of a client address.
        downloads: of submissions' files, and of audits, which read them; of a client address.
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
    registrations: Rate = field(default=Rate(2, 60))  # a classroom may share one address
    exports: Rate = field(default=Rate(30, 10))
    downloads: Rate = field(default=Rate(120, 60))

    def __post_init__(self) -> None:
        if self.registration not in get_args(Registration):
            raise ValueError(f"registration={self.registration!r}: must be open or closed")
        for name in ("session_hours", "submissions_per_day", "upload_bytes", "form_bytes", "upload_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be more than 0")
        if self.uploads_at_once < 1:
            raise ValueError(f"uploads_at_once={self.uploads_at_once}: must be 1 or more")
