"""What all pages of one server process share: the engine, and what was made a moment ago."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine
from starlette.requests import Request

from leaderboard.standings import Board, boards
from leaderboard.web.pages import points
from leaderboard.web.pages.points import Points
from leaderboard.web.pages.remembered import LASTING_SECONDS, Remembered, Versions

MOST_PAGES = 256  # of some 100 KB each
FOR_EVER_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Page:
    """A rendered page.

    Attributes:
        body: HTML in UTF-8.
        packed: the same by gzip.
        tag: changes with the body.
    """

    body: bytes
    packed: bytes
    tag: str


class Shared:
    """Of one application.

    Attributes:
        engine: of the board's database.
        versions: of the board.
        pages: by address, the same for everyone.
        played: what ledgers say, by submission; they never change.
        pictures: of boards, by filters; orders and pages have the same.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.versions = Versions(engine)
        # SQLite has one writer at a time, so that the number of the last event says all.
        lasting = LASTING_SECONDS if engine.dialect.name == "postgresql" else FOR_EVER_SECONDS
        self.pages: Remembered[Page] = Remembered(MOST_PAGES, lasting)
        self.played: Remembered[Any] = Remembered(MOST_PAGES, FOR_EVER_SECONDS)
        self.pictures: Remembered[Any] = Remembered(MOST_PAGES, lasting)
        self._boards: Remembered[list[Board]] = Remembered(1, lasting)
        self._points: Remembered[Points] = Remembered(16, lasting)
        self._names: dict[int, str] = {}

    def boards(self) -> list[Board]:
        """The environments and versions that have published results."""
        return self._boards.get("", self.versions.board(), lambda: boards(self.engine))

    def points(self, env_id: str, rules_version: str) -> Points:
        """The numbers of a board's pictures."""
        return self._points.get(
            (env_id, rules_version), self.versions.board(), lambda: points.read(self.engine, env_id, rules_version)
        )

    def names(self, ids: set[int]) -> dict[int, str]:
        """Names of submissions, which never change, so that each is read once."""
        missing = [id for id in ids if id not in self._names]
        if missing:
            if len(self._names) > 100_000:
                self._names = {}
                missing = list(ids)
            self._names |= points.names(self.engine, missing)
        return {id: self._names[id] for id in ids}


_making = threading.Lock()


def shared(request: Request) -> Shared:
    """Of the application that a request came to."""
    state = request.app.state
    with _making:
        if not hasattr(state, "pages"):
            state.pages = Shared(state.engine)
        found: Shared = state.pages
    return found
