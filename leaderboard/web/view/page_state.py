"""State that all pages of one server process share: the engine and the caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine
from starlette.requests import Request

from leaderboard.board.details import Run
from leaderboard.board.standings import Board, boards
from leaderboard.web.view import points
from leaderboard.web.view.cache import LIFETIME_SECONDS, VersionedCache, Versions
from leaderboard.web.view.points import Points

MOST_PAGES = 256  # about 100 KB each
DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class RenderedPage:
    """A rendered page."""

    body: bytes  # HTML in UTF-8
    packed: bytes  # compressed by gzip; empty for a small page
    tag: str  # ETag


class PageState:
    """Shared state of the pages of one application.

    Attributes:
        pages: rendered pages that are the same for every visitor.
        ledger_views: views of the ledgers of a submission, which never change.
        claims: claimed runs of a submission, by seed, which never change.
        pareto_charts: Pareto charts of a board, by filters; the pages and orders of a board share them.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.versions = Versions(engine)
        # SQLite has one writer at a time, so the number of the last event determines the version exactly.
        lifetime = LIFETIME_SECONDS if engine.dialect.name == "postgresql" else DAY_SECONDS
        self.pages: VersionedCache[RenderedPage] = VersionedCache(MOST_PAGES, lifetime)
        self.ledger_views: VersionedCache[Any] = VersionedCache(MOST_PAGES, DAY_SECONDS)
        self.claims: VersionedCache[dict[int, Run]] = VersionedCache(MOST_PAGES, DAY_SECONDS)
        self.pareto_charts: VersionedCache[Any] = VersionedCache(MOST_PAGES, lifetime)
        self._boards: VersionedCache[list[Board]] = VersionedCache(1, lifetime)
        self._points: VersionedCache[Points] = VersionedCache(16, lifetime)
        self._names: dict[int, str] = {}

    def boards(self) -> list[Board]:
        """Return the environments and versions that have published results."""
        return self._boards.get("", self.versions.board(), lambda: boards(self.engine))

    def points(self, env_id: str, rules_version: str) -> Points:
        """Return the numbers of a board's Pareto charts."""
        key = env_id, rules_version
        return self._points.get(key, self.versions.board(), lambda: points.read(self.engine, *key))

    def names(self, ids: set[int]) -> dict[int, str]:
        """Return names of submissions. Names never change, so each is read from the database once."""
        missing = [id for id in ids if id not in self._names]
        if missing:
            if len(self._names) > 100_000:
                self._names = {}
                missing = list(ids)
            self._names |= points.names(self.engine, missing)
        return {id: self._names.get(id, f"submission {id}") for id in ids}


def page_state(request: Request) -> PageState:
    """Return the shared state of the application that handles a request."""
    found: PageState = request.app.state.pages
    return found
