"""The Python client: requests, repetition after failures, and errors."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from types import SimpleNamespace

import httpx2
import pytest

from leaderboard.board import queue, standings
from leaderboard.board.details import details
from leaderboard.client import http
from leaderboard.client.client import Client
from leaderboard.errors import ConflictError, NotFoundError, RemoteError, SubmissionError, TooManyError
from leaderboard.verification.result import Finding

from ..conftest import ledger_of, package_of, verification_of
from ..web_client import client_of, person

ENV = "Digits-ALMA-v0"


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(http.time, "sleep", slept.append)
    return slept


class FailingTransport(httpx2.BaseTransport):
    """A transport to an application without a server. It replaces the responses of some requests by failures."""

    def __init__(self, test_client, failures=()):
        self.client, self.failures, self.count = test_client, dict(failures), 0

    def handle_request(self, request):
        self.count += 1
        failure = self.failures.get(self.count)
        if isinstance(failure, httpx2.Response):
            return failure
        if isinstance(failure, httpx2.ConnectError):
            raise failure
        path = request.url.raw_path.decode()
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        answer = self.client.request(request.method, path, content=request.read(), headers=headers)
        if failure is not None:  # the request arrived and its response was lost
            raise failure
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture
def board(engine):
    with closing(client_of(engine)) as opened:

        def make(who=None, failures=(), **options) -> Client:
            return Client("http://board", who and who.token, transport=FailingTransport(opened, failures), **options)

        yield make


def verify(engine, *findings) -> None:
    queue.finish(engine, queue.claim(engine, "w"), verification_of((0, 1, 2), *findings))


def test_a_script_submits_waits_and_reads_results(engine, board, tmp_path):
    client = board(person(engine, "Ada"))
    package_of(name="number 1", contact="ada@example.org").write(tmp_path / "mine")
    sent = client.submit(tmp_path / "mine")
    assert (sent.state, sent.new) == ("queued", True)
    assert client.submit(package_of(name="number 1", contact="ada@example.org")).new is False
    (listed,) = client.recent(state="queued", env_id=ENV)
    assert (listed.id, listed.name, listed.account) == (sent.id, "number 1", "Ada")
    seen = []

    def look(found) -> None:
        seen.append(found.state)
        if len(seen) == 1:
            verify(engine)

    assert client.wait(sent.id, progress=look).state == "verified"
    assert seen == ["queued", "verified"]
    found, here = client.status(sent.id), details(engine, sent.id)
    assert (found.manifest, found.runs, found.created_at) == (here.manifest, here.runs, here.created_at)
    assert found.worker is None
    assert client.standings(ENV, method="sm", sort="comp") == standings.standings(engine, ENV)
    assert client.boards() == standings.boards(engine)
    assert client.ledger(sent.id, 2) == ledger_of(2)
    assert client.package(sent.id) == package_of(name="number 1", contact="ada@example.org")
    assert b"number 1" in client.export(ENV, format="json", runs=True)


@pytest.mark.parametrize(("timeout", "poll", "pauses"), [(0, 5, []), (0.5, 4, [0.5]), (7, 5, [5, 2]), (10, 5, [5, 5])])
def test_waiting_lasts_until_the_timeout_and_asks_once_more(engine, board, monkeypatch, timeout, poll, pauses):
    client, clock, slept = board(person(engine, "Ada")), [100.0], []
    sent = client.submit(package_of()).id

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("leaderboard.client.client.time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    seen = []
    with pytest.raises(TimeoutError, match=f"queued after {timeout:g} s.*wait longer"):
        client.wait(sent, timeout=timeout, poll=poll, progress=lambda found: seen.append(clock[0] - 100))
    assert (slept, seen[-1]) == (pauses, timeout)


def test_the_client_does_not_import_fastapi():
    script = "import sys, leaderboard.client; sys.exit('fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_without_a_token_a_client_can_only_read(engine, board):
    client = board()
    assert client.boards() == []
    with pytest.raises(
        RemoteError, match="no valid token or session.*send the header.*set ALMA_LEADERBOARD_TOKEN"
    ) as caught:
        client.submit(package_of())
    assert caught.value.status == 401


def test_a_script_manages_tokens_and_accounts(engine, board):
    client = board(person(engine, "Mia", "maintainer"))
    me = client.me()
    assert (me.name, me.role, me.scopes) == ("Mia", "maintainer", ("submit", "review", "manage"))
    made = client.make_token("robot", scopes=["submit"], days=1)
    assert made.secret.startswith("alma_")
    assert made.expires_at is not None
    assert [token.name for token in client.tokens()] == ["robot", "first token"]
    client.revoke_token(made.id)
    assert client.tokens()[0].revoked_at is not None
    account, token = client.make_account("Cy")
    assert (account.name, token.scopes) == ("Cy", ("submit", "manage"))
    with pytest.raises(ConflictError, match="the name is taken"):
        client.make_account("cy")
    assert client.set_disabled(account.id, True).disabled_at is not None
    assert client.set_disabled(account.id, False).disabled_at is None


def test_a_maintainer_s_script_decides_and_retries(engine, board):
    client = board(person(engine, "Mia", "maintainer"))
    flagged, failed = client.submit(package_of(name="a")).id, client.submit(package_of(name="b")).id
    verify(engine, Finding("suspicious", "odd", "an odd thing"))
    queue.fail(engine, queue.claim(engine, "w"), "the disk was full", retry=False)
    assert client.status(flagged).findings == (Finding("suspicious", "odd", "an odd thing"),)
    assert client.decide(flagged, accept=True, reason="fine").published
    assert client.status(failed).last_error == "the disk was full"
    assert client.retry(failed).state == "queued"


def test_errors_have_the_messages_of_the_board(engine, board):
    client = board(person(engine, "Ada"))
    with pytest.raises(NotFoundError, match="submission 99: it does not exist"):
        client.status(99)
    with pytest.raises(SubmissionError, match="must have at least 3"):
        client.submit(package_of(seeds=[0]))
    with pytest.raises(SubmissionError, match="scopes"):
        client.make_token("x", scopes=["everything"])
    with pytest.raises(RemoteError, match="account Ada: not a maintainer"):
        client.make_account("Cy")
    odd = httpx2.Response(418, json={"detail": "", "problems": ["\x1b[31mred"]})
    with pytest.raises(RemoteError) as caught:
        board(failures={1: odd}).boards()
    assert str(caught.value) == "\\x1b[31mred"
    with pytest.raises(RemoteError, match="not that of a board of this version"):
        board(failures={1: httpx2.Response(200, text="<html>")}).boards()


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        # The token must not follow a redirect.
        (302, {"Location": "http://evil.example"}, "status 302, a redirect.*give the URL http://evil.example$"),
        (301, {"Location": "https://board/api/v1/boards"}, "status 301, a redirect.*give the URL https://board$"),
        (308, {"Location": "/alma/api/v1/boards"}, "status 308, a redirect.*give the URL http://board/alma$"),
        (308, {"Location": "http://[\x1b"}, r"give the URL http://\[\\x1b$"),
        (401, {}, "status 401; make a token .* set ALMA_LEADERBOARD_TOKEN or give --token$"),
        (404, {}, "status 404; check that this is the URL of a board$"),
        (502, {}, "status 502: the proxy has no answer of the board; try again later$"),
        (503, {}, "status 503: the board is busy; try again later$"),
        (504, {}, "status 504: the proxy has no answer of the board; try again later$"),
    ],
)
def test_an_answer_of_no_board_has_a_message_with_a_remedy(engine, board, status, headers, message):
    with pytest.raises(RemoteError, match=message) as caught:
        board(failures={1: httpx2.Response(status, headers=headers)}, attempts=1).boards()
    assert caught.value.status == status


def test_a_submission_is_sent_again_after_a_lost_response_and_stays_one(engine, board, no_pauses):
    lost = {1: httpx2.ReadError("reset"), 2: httpx2.Response(502), 3: httpx2.ConnectError("refused")}
    sent = board(person(engine, "Ada"), lost).submit(package_of())
    assert sent.new is False  # the first request had arrived
    assert len(board().recent()) == 1
    assert len(no_pauses) == 3
    assert 0.25 <= no_pauses[0] <= 0.5 <= no_pauses[1] <= 1.0 <= no_pauses[2] <= 2.0


def test_a_token_is_not_made_again_after_a_lost_response(engine, board):
    ada = person(engine, "Ada")
    with pytest.raises(RemoteError, match=r"no response \(ReadError: reset\)"):
        board(ada, {1: httpx2.ReadError("reset")}).make_token("x")
    assert len(board(ada).tokens()) == 2
    assert board(ada, {1: httpx2.ConnectError("refused")}).make_token("y").name == "y"  # the request had not arrived
    assert board(ada, {1: httpx2.Response(503)}).make_token("z").name == "z"


def test_a_request_is_repeated_after_the_seconds_of_retry_after(engine, board, no_pauses):
    busy = httpx2.Response(503, headers={"Retry-After": "7"})
    assert board(failures={1: busy}).boards() == []
    assert no_pauses == [7.0]
    often = httpx2.Response(429, headers={"Retry-After": "3600"}, json={"detail": "", "problems": ["too many"]})
    with pytest.raises(TooManyError, match="too many") as caught:
        board(failures={1: often}).boards()
    assert caught.value.seconds == 3600
    with pytest.raises(RemoteError, match="status 503"):
        board(failures=dict.fromkeys((1, 2), busy), attempts=2).boards()


def test_an_unreachable_board_is_reported():
    with pytest.raises(RemoteError, match="http://127.0.0.1:1: no response .ConnectError"):
        Client("http://127.0.0.1:1", attempts=2).boards()


@pytest.mark.parametrize("url", ["", "board", "ftp://board", "http://", "http://user:secret@board", "file:///etc", 7])
def test_an_invalid_url_is_refused(url):
    with pytest.raises(ValueError, match="write it like https://") as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Evil: 1", "ü"])
def test_an_invalid_token_is_refused_and_not_shown(token):
    with pytest.raises(ValueError, match="copy it as it was shown"):
        Client("http://board", token)
