"""A page is sent again only if it changed, compressed if the browser accepts it, and never older than the results."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from leaderboard.board import queue
from leaderboard.board.submissions import submit
from leaderboard.web.view.cache import VersionedCache, Versions
from leaderboard.web.view.page_state import PageState

from ..conftest import package_of, verification_of
from ..page_reader import BOARD, get, publish
from ..web_client import person


def test_an_unchanged_page_is_not_sent_again(client, engine, filled):
    first = client.get(BOARD)
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    again = client.get(BOARD, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    publish(engine, name="new", comp=3)
    fresh = client.get(BOARD, headers={"If-None-Match": tag})
    assert fresh.status_code == 200
    assert "new" in fresh.text


def test_a_page_is_compressed_for_browsers_that_accept_gzip(client, filled):
    packed = client.get(BOARD, headers={"Accept-Encoding": "gzip"})
    plain = client.get(BOARD, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) < len(plain.content) / 3


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("br, gzip", True),
        ("GZIP ; Q=0.5", True),
        ("gzip;q=1.000", True),
        ("", False),
        ("*", False),
        ("gzip;q=0", False),
        ("br;q=1.0, gzip; q=0.000", False),
        ("gzip;q=nan", False),
        ("x-gzip-none", False),
    ],
)
def test_a_weight_of_zero_refuses_gzip(client, filled, accepted, packed):
    response = client.get(BOARD, headers={"Accept-Encoding": accepted})
    assert (response.headers.get("content-encoding") == "gzip") == packed
    assert "Standings" in response.text


def test_a_result_during_a_request_is_on_the_page_of_the_next_request(client, engine, filled, monkeypatch):
    boards = PageState.boards

    def slow(state):
        found = boards(state)
        monkeypatch.undo()
        publish(engine, name="meanwhile", comp=5, method="new-method")
        return found

    monkeypatch.setattr(PageState, "boards", slow)
    get(client, f"{BOARD}?sort=comp")
    assert "4 verified submissions" in get(client, f"{BOARD}?sort=comp").text


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_version_of_the_board_changes_only_with_the_standings(engine):
    versions = Versions(engine)
    before = versions.board(), versions.latest()
    sent = submit(engine, package_of()).id
    assert versions.board() == before[0]
    assert versions.latest() > before[1]
    person(engine, "Ada")
    lease = queue.claim(engine, "w")
    assert versions.board() == before[0]
    queue.finish(engine, lease, verification_of())
    assert versions.board() > before[0]
    assert Versions(engine).board() >= versions.board() > 0
    assert sent


def test_a_result_between_the_first_two_requests_changes_the_version_of_the_board(engine):
    versions = Versions(engine)

    def connect():  # of the first request; meanwhile the second one is complete, and a result is written
        versions._engine = engine
        versions.board()
        publish(engine, name="meanwhile")
        return engine.connect()

    versions._engine = SimpleNamespace(connect=connect)
    versions.board()
    assert versions.board() == versions.latest() > 0


def test_cache_entries_end_with_their_version_their_lifetime_and_for_space():
    moment, made = [0.0], []

    def make():
        made.append(1)
        return len(made)

    cache = VersionedCache(2, seconds=10, clock=lambda: moment[0])
    assert [cache.get("a", 1, make), cache.get("a", 1, make)] == [1, 1]
    assert cache.get("a", 2, make) == 2
    moment[0] = 10.0
    assert cache.get("a", 2, make) == 3
    cache.get("b", 2, make)
    cache.get("a", 2, make)
    cache.get("c", 2, make)  # removes b, the least recently used entry
    assert cache.get("a", 2, make) == 3
    assert cache.get("b", 2, make) == 6
    with pytest.raises(ZeroDivisionError):
        cache.get("d", 1, lambda: 1 // 0)
    assert cache.get("d", 1, make) == 7
