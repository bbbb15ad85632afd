"""Slow uploads do not keep others from uploading, and every body has a deadline."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from fastapi import HTTPException

from leaderboard.web.guard import security
from leaderboard.web.guard.uploads import Places

from .. import asgi
from ..conftest import package_of
from ..web_client import SETTINGS, app_of, person

ADDRESSES = [f"192.0.2.{number}" for number in range(20)]


def uploads(**changes) -> Places:
    return Places(replace(SETTINGS, upload_wait_seconds=0.05, **changes))


async def enter(stack: AsyncExitStack, places: Places, account: int, address: str) -> None:
    await stack.enter_async_context(places.place(account, address))


def test_one_account_and_one_address_take_only_their_share():
    async def run() -> None:
        places = uploads(uploads_at_once=4, uploads_per_account=1, uploads_per_address=2)
        async with AsyncExitStack() as stack:
            await enter(stack, places, 1, ADDRESSES[1])
            for address in ADDRESSES[2:4]:
                with pytest.raises(HTTPException, match="the board takes other uploads"):
                    await enter(stack, places, 1, address)
            await enter(stack, places, 2, ADDRESSES[1])
            with pytest.raises(HTTPException, match="the board takes other uploads"):
                await enter(stack, places, 3, ADDRESSES[1])
            await enter(stack, places, 4, ADDRESSES[4])
            await enter(stack, places, 5, ADDRESSES[5])
            with pytest.raises(HTTPException) as caught:
                await enter(stack, places, 6, ADDRESSES[6])
            assert (caught.value.status_code, caught.value.headers) == (503, {"Retry-After": "5"})
        async with AsyncExitStack() as stack:  # all places are free again
            for number in range(1, 5):
                await enter(stack, places, number, ADDRESSES[number])

    asyncio.run(run())


def test_the_first_upload_with_a_place_of_its_own_is_the_next_one():
    order: list[str] = []

    async def upload(places: Places, name: str, account: int) -> None:
        async with places.place(account, ADDRESSES[account]):
            order.append(name)
            await asyncio.sleep(0.01)

    async def run() -> None:
        places = Places(replace(SETTINGS, uploads_at_once=2, uploads_per_account=1))
        names = [("flood 1", 1), ("flood 2", 1), ("flood 3", 1), ("ada", 2)]
        await asyncio.gather(*(upload(places, *name) for name in names))

    asyncio.run(run())
    assert order == ["flood 1", "ada", "flood 2", "flood 3"]


def test_a_caller_has_few_uploads_waiting_and_a_cancelled_one_leaves_its_place():
    async def run() -> None:
        places = Places(replace(SETTINGS, uploads_at_once=1))
        async with places.place(1, ADDRESSES[1]):
            waiting = [asyncio.create_task(enter(AsyncExitStack(), places, 2, ADDRESSES[2])) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(HTTPException) as caught:
                await enter(AsyncExitStack(), places, 2, ADDRESSES[2])
            assert caught.value.status_code == 429
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        async with places.place(3, ADDRESSES[3]):
            pass

    asyncio.run(run())


class SlowBody:
    """A body of which little arrives at a time, for ever."""

    def __init__(self, pause: float, part: bytes = b"P") -> None:
        self.pause, self.part = pause, part

    async def __call__(self):
        await asyncio.sleep(self.pause)
        return {"type": "http.request", "body": self.part, "more_body": True}


@pytest.mark.parametrize(
    ("path", "kind_of_body"),
    [
        ("/api/v1/submissions", b"application/zip"),
        ("/api/v1/tokens", b"application/json"),
        ("/login", b"application/x-www-form-urlencoded"),
        ("/submit", b"multipart/form-data; boundary=x"),
    ],
)
@pytest.mark.parametrize("pause", [0.01, 60.0])
def test_a_body_that_does_not_end_is_ended(engine, path, kind_of_body, pause, monkeypatch):
    monkeypatch.setattr(security, "_FREE_SECONDS", 0.1)
    ada = person(engine, "Ada")
    app = app_of(engine, SETTINGS)
    headers = [(b"content-type", kind_of_body), (b"authorization", f"Bearer {ada.token}".encode())]
    status, _, text = asgi.request(
        app, "POST", path, headers, SlowBody(pause, b"" if b"boundary" in kind_of_body else b"P")
    )
    assert status == 408
    assert "bytes of the body arrived in" in text


def test_four_slow_uploads_of_one_account_leave_room_for_others(engine):
    eve, ada = person(engine, "Eve"), person(engine, "Ada")
    app = app_of(engine, replace(SETTINGS, uploads_at_once=4))

    def headers(who) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", b"application/zip"), (b"authorization", f"Bearer {who.token}".encode())]

    archive = package_of().to_zip()

    async def whole():
        return {"type": "http.request", "body": archive, "more_body": False}

    async def run() -> int:
        slow = [
            asyncio.create_task(
                asgi.call(app, "POST", "/api/v1/submissions", headers(eve), SlowBody(0.2), ADDRESSES[1])
            )
            for _ in range(4)
        ]
        await asyncio.sleep(0.3)
        status, _, _ = await asgi.call(app, "POST", "/api/v1/submissions", headers(ada), whole, ADDRESSES[2])
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return status

    assert asyncio.run(run()) == 201
