"""One client address cannot fill the queue of the board or the list of its accounts."""

from __future__ import annotations

from dataclasses import replace

from leaderboard.accounts.accounts import list_accounts
from leaderboard.board.listing import list_submissions

from .. import asgi
from ..conftest import package_of
from ..page_reader import form, get
from ..web_client import SETTINGS, Person, app_of, client_of, person


def send(app, who: Person, number: int, address: str) -> int:
    headers = [(b"content-type", b"application/zip"), (b"authorization", f"Bearer {who.token}".encode())]
    archive = package_of(name=f"{who.name} {number}").to_zip()
    return asgi.request(app, "POST", "/api/v1/submissions", headers, archive, address)[0]


def test_56_accounts_of_one_address_with_50_submissions_each_do_not_fill_the_queue(engine):
    app = app_of(engine, replace(SETTINGS, waiting_per_account=3, waiting_per_address=8))
    flood = [person(engine, f"flood-{number}-x") for number in range(6)]
    answers = [send(app, who, number, "192.0.2.1") for number in range(4) for who in flood]
    assert (answers.count(201), answers.count(429)) == (8, len(answers) - 8)
    other = person(engine, "Ada")
    assert [send(app, other, number, "192.0.2.2") for number in range(4)] == [201, 201, 201, 429]
    assert list_submissions(engine, limit=200).total == 11


def test_an_address_in_a_network_of_ipv6_counts_as_one(engine):
    app = app_of(engine, replace(SETTINGS, waiting_per_address=2))
    answers = [send(app, person(engine, f"flood-{n}-x"), 0, f"2001:db8::{n:x}") for n in range(4)]
    assert answers == [201, 201, 429, 429]
    assert send(app, person(engine, "Ada"), 0, "2001:db8:0:1::1") == 201


def test_one_address_registers_few_accounts_a_day(engine):
    with client_of(engine, registrations_per_day=3) as client:
        for number in range(3):
            form(client, "/register", "/register", 201, name=f"Ada-{number}-x")
            form(client, "/account", "/logout")
        response = form(client, "/register", "/register", 429, name="Eve")
        assert "made 3 accounts in 24 hours, the limit of an address" in response.text
        assert int(response.headers["retry-after"]) > 80_000
        assert len(list_accounts(engine)[0]) == 3


def test_a_name_that_looks_like_another_one_is_refused_by_the_form(engine):
    person(engine, "alma-env")
    with client_of(engine) as client:
        for name in ("a1ma_env", "Alma.Env"):
            assert "looks like one that is" in form(client, "/register", "/register", 409, name=name).text
        for name in ("b ob", "b\u043eb", "b\u00a0ob"):
            assert "ASCII letters" in form(client, "/register", "/register", 422, name=name).text
        assert get(client, "/register").all("input", name="name", maxlength="40")
