"""Places for archives in memory. Accounts and client addresses share them fairly; a caller waits for a limited time.

An upload holds a place while its archive arrives and is checked, and a download until its archive is sent. A caller who
takes all its own places, or is slow, does not keep the others from uploading or downloading.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from fastapi import HTTPException, Request

from leaderboard.web.guard.limits import network_of, spend, too_many
from leaderboard.web.guard.settings import Settings

MOST_WAITING = 200  # archives
WAITING_PER_PLACE = 4  # archives that a caller may have waiting, for each place of its own
RETRY_SECONDS = 5


def place_of(request: Request, account_id: int) -> AbstractAsyncContextManager[None]:
    """Count an archive of an account towards its limit, and return the place that its upload holds inside a ``with``.

    Raises:
        HTTPException: 429, the account has sent too many archives.
    """
    spend(request, "archives", account_id)
    uploads: Places = request.app.state.uploads
    return uploads.place(account_id, network_of(request))


def download_place(request: Request, account_id: int | None) -> AbstractAsyncContextManager[None]:
    """Return the place that a download holds inside a ``with``; all visitors of an address are one account."""
    downloads: Places = request.app.state.downloads
    return downloads.place(account_id, network_of(request))


@dataclass(eq=False)
class _Waiting:
    account: Hashable
    network: Hashable
    admitted: asyncio.Future[None]


class Places:
    """The places of the uploads, or of the downloads, of one process.

    All calls are in the event loop of the process, so they need no lock.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._inside: Counter[Hashable] = Counter()  # by account and by network; by None of all
        self._waiting: list[_Waiting] = []

    @asynccontextmanager
    async def place(self, account_id: int | None, network: str) -> AsyncIterator[None]:
        """Hold a place inside a ``with``.

        Raises:
            HTTPException: 429, the caller has too many archives waiting; 503, no place became free.
        """
        account = ("account", account_id) if account_id is not None else ("visitors", network)
        one = _Waiting(account, ("network", network), asyncio.get_running_loop().create_future())
        self._require_few_waiting(one)
        self._waiting.append(one)
        try:
            self._admit()
            async with asyncio.timeout(self._settings.upload_wait_seconds):
                await one.admitted
            yield
        except TimeoutError as error:
            problem = f"the board takes other uploads or downloads; try again in {RETRY_SECONDS} s"
            raise HTTPException(503, problem, headers={"Retry-After": str(RETRY_SECONDS)}) from error
        finally:
            self._leave(one)

    def _leave(self, one: _Waiting) -> None:
        if one in self._waiting:
            self._waiting.remove(one)
        else:  # it was admitted, even if it was cancelled before it knew
            self._inside.subtract((one.account, one.network, None))
            self._inside = +self._inside
        self._admit()

    def _require_few_waiting(self, one: _Waiting) -> None:
        mine = sum(each.account == one.account for each in self._waiting)
        near = sum(each.network == one.network for each in self._waiting)
        if (
            mine >= WAITING_PER_PLACE * self._settings.uploads_per_account
            or near >= WAITING_PER_PLACE * self._settings.uploads_per_address
            or len(self._waiting) >= MOST_WAITING
        ):
            raise too_many(RETRY_SECONDS)

    def _admit(self) -> None:
        settings = self._settings
        for one in list(self._waiting):  # the first one that has a place of its own
            if self._inside[None] >= settings.uploads_at_once:
                return
            if (
                not one.admitted.done()
                and self._inside[one.account] < settings.uploads_per_account
                and self._inside[one.network] < settings.uploads_per_address
            ):
                self._inside.update((one.account, one.network, None))
                self._waiting.remove(one)
                one.admitted.set_result(None)
