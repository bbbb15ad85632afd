"""What the address of a page asks for, read strictly, and the addresses of its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast, get_args
from urllib.parse import urlencode

from leaderboard.standings import Metric
from leaderboard.text_rules import shown
from leaderboard.web.pages import addresses

PAGE_LINES = 50
_LARGEST = 2**31 - 1  # what a database's integer holds


class AskedError(ValueError):
    """An address asks for what there is not."""


def whole_number(name: str, text: str, low: int = 1, high: int = _LARGEST) -> int:
    """A number of an address.

    Raises:
        AskedError: it is none, or out of range.
    """
    try:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
    except ValueError:
        number = None
    if number is None or not low <= number <= high:
        raise AskedError(f"{name}={shown(text)}: must be a whole number from {low} to {high}; mend the address")
    return number


@dataclass(frozen=True)
class Asked:
    """A page of the standings.

    Attributes:
        env_id: of the environment.
        rules_version: Major.Minor.
        sort: by the mean of which number.
        descending: the largest first.
        method: of this method alone.
        budget_class: of this decade of Comp alone.
        waiting_time: of this waiting time alone.
        page: from 1.
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
    def of(cls, env_id: str, rules_version: str, query: Mapping[str, str]) -> Asked:
        """From an address. A form leaves a field empty where nothing was chosen.

        Raises:
            AskedError: a value is not one that there is.
        """
        sort = query.get("sort") or "cer"
        if sort not in get_args(Metric):
            raise AskedError(f"sort={shown(sort)}: must be one of {', '.join(get_args(Metric))}; mend the address")
        descending = query.get("descending") or "0"
        if descending not in ("0", "1"):
            raise AskedError(f"descending={shown(descending)}: must be 0 or 1; mend the address")

        def number(name: str, low: int) -> int | None:
            return whole_number(name, query[name], low) if query.get(name) else None

        return cls(
            env_id,
            rules_version,
            cast(Metric, sort),
            descending == "1",
            # No method is longer; a longer one is of no use as a key of what is remembered.
            (query.get("method") or "")[:40].replace("\0", "") or None,
            number("budget_class", 0),
            number("waiting_time", 1),
            number("page", 1) or 1,
        )

    @property
    def offset(self) -> int:
        """Lines before the page."""
        return min((self.page - 1) * PAGE_LINES, _LARGEST)

    @property
    def filtered(self) -> bool:
        """Whether a filter is set."""
        return (self.method, self.budget_class, self.waiting_time) != (None, None, None)

    def address(self, **changes: Any) -> str:
        """The address of this page with changes, from the board's root on, without what is usual."""
        wanted = replace(self, **changes)
        values = {
            "sort": wanted.sort if wanted.sort != "cer" else None,
            "descending": 1 if wanted.descending else None,
            "method": wanted.method,
            "budget_class": wanted.budget_class,
            "waiting_time": wanted.waiting_time,
            "page": wanted.page if wanted.page > 1 else None,
        }
        query = urlencode({name: value for name, value in values.items() if value is not None})
        return addresses.board(wanted.env_id, wanted.rules_version) + (f"?{query}" if query else "")
