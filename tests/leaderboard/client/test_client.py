"""The client: what a script sends and reads, what it repeats, and what errors become."""

from __future__ import annotations

from contextlib import closing

import httpx2
import pytest

from leaderboard import queue, remote, standings
from leaderboard.client import Client
from leaderboard.details import details
from leaderboard.errors import ConflictError, NotFoundError, RemoteError, SubmissionError, TooManyError
from leaderboard.verification import Finding

from .conftest import ledger_of, package_of, verification_of
from .web_client import client_of, person

ENV = "Digits-ALMA-v0"


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(remote.time, "sleep", slept.append)
    return slept


class Travels(httpx2.BaseTransport):
    """To an application without a server; some requests, by their number, get lost or are answered otherwise."""

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
        if failure is not None:  # it arrived, and its answer got lost
            raise failure
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture
def board(engine):
    with closing(client_of(engine)) as opened:

        def make(who=None, failures=(), **options) -> Client:
            return Client("http://board", who and who.token, transport=Travels(opened, failures), **options)

        yield make


def verify(engine, *findings) -> None:
    queue.finish(engine, queue.claim(engine, "w"), verification_of((0, 1, 2), *findings))


def test_a_script_sends_waits_and_reads(engine, board, tmp_path):
    client = board(person(engine, "Ada"))
    package_of(name="number 1", contact="ada@example.org").write(tmp_path / "mine")
    sent = client.submit(tmp_path / "mine")
    assert (sent.state, sent.new) == ("queued", True)
    assert client.submit(package_of(name="number 1", contact="ada@example.org")).new is False
    (listed,) = client.recent(state="queued", env_id=ENV)
    assert (listed.id, listed.name, listed.account) == (sent.id, "number 1", "Ada")
    with pytest.raises(TimeoutError, match="queued after 3 s; it goes on there"):
        client.wait(sent.id, timeout=3, poll=4)
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


def test_without_a_token_one_reads_and_sends_nothing(engine, board):
    client = board()
    assert client.boards() == []
    with pytest.raises(RemoteError, match="this needs a token") as caught:
        client.submit(package_of())
    assert caught.value.status == 401


def test_tokens_and_accounts_are_kept_by_script(engine, board):
    client = board(person(engine, "Mia", "maintainer"))
    me = client.me()
    assert (me.name, me.role, me.scopes) == ("Mia", "maintainer", ("submit", "review", "manage"))
    made = client.make_token("robot", scopes=["submit"], days=1)
    assert made.secret.startswith("alma_")
    assert made.expires_at is not None
    assert [token.name for token in client.tokens()] == ["robot", "t"]
    client.revoke_token(made.id)
    assert client.tokens()[0].revoked_at is not None
    account, token = client.make_account("Cy")
    assert (account.name, token.scopes) == ("Cy", ("submit", "manage"))
    with pytest.raises(ConflictError, match="the name is taken"):
        client.make_account("cy")
    assert client.set_disabled(account.id, True).disabled_at is not None
    assert client.set_disabled(account.id, False).disabled_at is None


def test_a_maintainer_decides_and_retries_by_script(engine, board):
    client = board(person(engine, "Mia", "maintainer"))
    flagged, failed = client.submit(package_of(name="a")).id, client.submit(package_of(name="b")).id
    verify(engine, Finding("suspicious", "odd", "an odd thing"))
    queue.fail(engine, queue.claim(engine, "w"), "the disk was full", retry=False)
    assert client.status(flagged).findings == (Finding("suspicious", "odd", "an odd thing"),)
    assert client.decide(flagged, accept=True, reason="fine").published
    assert client.status(failed).last_error == "the disk was full"
    assert client.retry(failed).state == "queued"


def test_errors_say_what_the_board_says(engine, board):
    client = board(person(engine, "Ada"))
    with pytest.raises(NotFoundError, match="submission 99: there is none"):
        client.status(99)
    with pytest.raises(SubmissionError, match="a score needs at least 3 seeds"):
        client.submit(package_of(seeds=[0]))
    with pytest.raises(SubmissionError, match="scopes"):
        client.make_token("x", scopes=["everything"])
    with pytest.raises(RemoteError, match="no maintainer's"):
        client.make_account("Cy")
    odd = httpx2.Response(418, json={"detail": "", "problems": ["\x1b[31mred"]})
    with pytest.raises(RemoteError) as caught:
        board(failures={1: odd}).boards()
    assert str(caught.value) == "\\x1b[31mred"
    with pytest.raises(RemoteError, match="not as a board of alma-env does"):
        board(failures={1: httpx2.Response(200, text="<html>")}).boards()
    with pytest.raises(RemoteError, match="answers with the status 302"):  # and the token does not go there
        board(failures={1: httpx2.Response(302, headers={"Location": "http://evil.example"})}).boards()


def test_a_submission_whose_answer_got_lost_is_sent_again_and_is_one(engine, board, no_pauses):
    lost = {1: httpx2.ReadError("reset"), 2: httpx2.Response(502), 3: httpx2.ConnectError("refused")}
    sent = board(person(engine, "Ada"), lost).submit(package_of())
    assert sent.new is False  # it had arrived the first time
    assert len(board().recent()) == 1
    assert len(no_pauses) == 3
    assert 0.25 <= no_pauses[0] <= 0.5 <= no_pauses[1] <= 1.0 <= no_pauses[2] <= 2.0


def test_a_token_whose_answer_got_lost_is_not_made_twice(engine, board):
    ada = person(engine, "Ada")
    with pytest.raises(RemoteError, match=r"does not answer \(ReadError: reset\)"):
        board(ada, {1: httpx2.ReadError("reset")}).make_token("x")
    assert len(board(ada).tokens()) == 2
    assert board(ada, {1: httpx2.ConnectError("refused")}).make_token("y").name == "y"  # nothing had arrived
    assert board(ada, {1: httpx2.Response(503)}).make_token("z").name == "z"


def test_a_board_that_is_busy_is_asked_again_when_it_says(engine, board, no_pauses):
    busy = httpx2.Response(503, headers={"Retry-After": "7"})
    assert board(failures={1: busy}).boards() == []
    assert no_pauses == [7.0]
    often = httpx2.Response(429, headers={"Retry-After": "3600"}, json={"detail": "", "problems": ["too many"]})
    with pytest.raises(TooManyError, match="too many") as caught:
        board(failures={1: often}).boards()
    assert caught.value.seconds == 3600
    with pytest.raises(RemoteError, match="status 503"):
        board(failures=dict.fromkeys((1, 2), busy), attempts=2).boards()


def test_a_board_that_is_not_there_is_told():
    with pytest.raises(RemoteError, match="http://127.0.0.1:1: does not answer .ConnectError"):
        Client("http://127.0.0.1:1", attempts=2).boards()


@pytest.mark.parametrize("url", ["", "board", "ftp://board", "http://", "http://user:secret@board", "file:///etc", 7])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="write it like https://") as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Evil: 1", "ü"])
def test_a_token_that_no_header_takes_is_refused_without_being_shown(token):
    with pytest.raises(ValueError, match="copy it as it was shown"):
        Client("http://board", token)
