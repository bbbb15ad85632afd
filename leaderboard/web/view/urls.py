"""URLs of pages and of the API, and the query of a page of the standings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException

from leaderboard.database.tables import LARGEST_ID, METRICS, Metric
from leaderboard.text_safety import shown

API = "/api/v1"
PAGE_LINES = 50


def board(env_id: str, rules_version: str) -> str:
    """Return the URL of the standings of an environment, from the board's root on.

    >>> board("Digits-ALMA-v0", "0.1")
    '/boards/Digits-ALMA-v0/0.1'
    """
    return f"/boards/{quote(env_id, safe='')}/{quote(rules_version, safe='')}"


def export(env_id: str, rules_version: str, format: str) -> str:
    """Return the URL of a board as a file."""
    return f"{API}{board(env_id, rules_version)}/export?format={format}"


class QueryError(HTTPException):
    """A value in a URL or a form is invalid: status 400."""

    def __init__(self, problem: str) -> None:
        super().__init__(400, problem)

    def __str__(self) -> str:
        return self.detail


def whole_number(name: str, text: str, low: int = 1, high: int = LARGEST_ID) -> int:
    """Parse a whole number of a URL or a form, or raise QueryError."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
    if number is None or not low <= number <= high:
        raise QueryError(f"{name}={shown(text)}: must be a whole number from {low} to {high}; correct the value")
    return number


@dataclass(frozen=True)
class BoardQuery:
    """The query of a page of the standings.

    The page counts from 1; `leaderboard.board.standings.StandingsQuery` describes the filters and the order.
    """

    env_id: str
    rules_version: str
    sort: Metric = "cer"
    descending: bool = False
    method: str | None = None
    budget_class: int | None = None
    waiting_time: int | None = None
    page: int = 1

    @classmethod
    def parse(cls, env_id: str, rules_version: str, query: Mapping[str, str]) -> BoardQuery:
        """Parse the query of a URL, or raise QueryError. Empty values are ignored: forms send all their fields."""
        sort = query.get("sort") or "cer"
        if sort not in METRICS:
            raise QueryError(f"sort={shown(sort)}: must be one of {', '.join(METRICS)}; correct the address")
        descending = query.get("descending") or "0"
        if descending not in ("0", "1"):
            raise QueryError(f"descending={shown(descending)}: must be 0 or 1; correct the address")

        def number(name: str, low: int) -> int | None:
            return whole_number(name, query[name], low) if query.get(name) else None

        return cls(
            env_id,
            rules_version,
            sort,
            descending == "1",
            # No method has a longer name, and the query is a key of the cache of pages.
            (query.get("method") or "")[:40].replace("\0", "") or None,
            number("budget_class", 0),
            number("waiting_time", 1),
            number("page", 1) or 1,
        )

    @property
    def offset(self) -> int:
        """Number of lines before the page."""
        return min((self.page - 1) * PAGE_LINES, LARGEST_ID)

    @property
    def filters(self) -> dict[str, Any]:
        """The filters; None for a filter that is not set."""
        return {"method": self.method, "budget_class": self.budget_class, "waiting_time": self.waiting_time}

    @property
    def filtered(self) -> bool:
        """Whether a filter is set."""
        return any(value is not None for value in self.filters.values())

    def url(self, **changes: Any) -> str:
        """Return the URL of this page with changes, from the board's root on. It leaves out default values."""
        wanted = replace(self, **changes)
        values = {
            "sort": wanted.sort if wanted.sort != "cer" else None,
            "descending": 1 if wanted.descending else None,
            **wanted.filters,
            "page": wanted.page if wanted.page > 1 else None,
        }
        query = urlencode({name: value for name, value in values.items() if value is not None})
        return board(wanted.env_id, wanted.rules_version) + (f"?{query}" if query else "")
