"""Accounts on the pages: to register, log in, send, make tokens, review; and who may not."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

import pytest

from leaderboard.verification import Finding

from .conftest import package_of
from .page_reader import BOARD, Read, form, get, log_in, publish
from .web_client import client_of, person


@pytest.fixture
def kind() -> str:
    """Of database; accounts are tested with both elsewhere."""
    return "sqlite"


@pytest.fixture
def client(engine):
    with closing(client_of(engine)) as opened:
        yield opened


def test_an_account_is_made_sends_a_submission_and_logs_out(client, engine):
    made = Read(form(client, "/register", "/register", 201, name="Ada"), 201)
    token = re.search(r"alma_[\w-]+", made.text)[0]
    archive = {"archive": ("a.zip", package_of(name="by form").to_zip(), "application/zip")}
    sent = form(client, "/submit", "/submit", files=archive).headers["location"]
    assert "by form" in get(client, sent).text
    account = get(client, "/account")
    assert sent in account.links
    assert "this session" in account.text
    assert form(client, "/account", "/logout").headers["location"] == "/"
    assert client.get("/account").headers["location"] == "/login?next=%2Faccount"
    form(client, "/login?next=/submit", "/login", token=token)
    assert "Send it as Ada" in get(client, "/submit").text
    assert client.get("/login").headers["location"] == "/account"


def test_what_is_wrong_with_a_submission_is_told_and_nothing_is_stored(client, engine):
    log_in(client, person(engine, "Ada"))
    bad = package_of(name="", seeds=[1]).to_zip()
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("a.zip", bad)}), 422)
    assert "name" in page.text
    assert "seeds" in page.text
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("a.zip", b"no zip")}), 422)
    assert "pack the folder anew" in page.text
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("", b"")}), 422)
    assert "no file was sent" in page.text
    assert "Nothing was sent yet" in get(client, "/submissions").text


def test_who_is_not_known_does_not_wait_among_the_uploads(client):
    client.app.state.uploads = asyncio.Semaphore(0)  # nobody else is let in
    answer = client.post("/submit", files={"archive": ("a.zip", b"PK")})
    assert answer.status_code == 401
    assert "log in" in answer.text


def test_forms_of_other_sites_and_without_their_token_are_refused(client, engine):
    ada = person(engine, "Ada")
    assert client.post("/login", data={"token": ada.token}).status_code == 403
    log_in(client, ada)
    page = get(client, "/account")
    csrf = page.all("input", name="csrf")[0]["value"]
    evil = {"Origin": "https://evil.example"}
    for path in ("/logout", "/account/tokens", "/account/tokens/revoke", "/submit", "/review/decision", "/login"):
        assert client.post(path, data={"csrf": csrf}, headers=evil).status_code == 403, path
        assert client.post(path, data={"csrf": "x"}).status_code == 403, path
    assert "Log out" in get(client, "/account").text


def test_a_token_that_is_none_does_not_log_in_and_no_other_site_is_gone_to(client, engine):
    page = Read(form(client, "/login", "/login", 401, token="alma_wrong"), 401)
    assert "this token opens nothing here" in page.text
    ada = person(engine, "Ada")
    response = form(client, "/login?next=//evil.example/", "/login", token=ada.token)
    assert response.headers["location"] == "/account"


def test_tokens_are_made_shown_once_and_revoked(client, engine):
    log_in(client, person(engine, "Ada"))
    made = Read(form(client, "/account", "/account/tokens", 201, name="laptop", scope="submit", days="30"), 201)
    secret = re.search(r"alma_[\w-]{20,}", made.text)[0]
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/me", headers=bearer).json()["scopes"] == ["submit"]
    page = get(client, "/account")
    assert secret not in page.text
    newest = next(a["value"] for a in page.all("input", name="token"))
    form(client, "/account", "/account/tokens/revoke", token=newest)
    assert client.get("/api/v1/me", headers=bearer).status_code == 401
    for wrong, said in (
        ({"name": "", "scope": "submit"}, "not 1 to 80 characters"),
        ({"name": "x"}, "give one or more of submit, manage"),
        ({"name": "x", "scope": "review"}, "give one or more of"),
        ({"name": "x", "scope": "submit", "days": "soon"}, "days='soon'"),
    ):
        assert said in Read(form(client, "/account", "/account/tokens", 422, **wrong), 422).text


def test_where_registration_is_closed_no_account_is_made(engine):
    with closing(client_of(engine, registration="closed")) as client:
        page = get(client, "/register")
        assert "made by maintainers" in page.text
        assert not page.all("form", action="/register")
        csrf = get(client, "/login").all("input", name="csrf")[0]["value"]
        assert client.post("/register", data={"csrf": csrf, "name": "Eve"}).status_code == 403


def test_a_name_that_is_taken_is_told_so(client, engine):
    person(engine, "Ada")
    page = Read(form(client, "/register", "/register", 409, name="ada"), 409)
    assert "the name is taken" in page.text
    assert page.all("input", name="name")[0]["value"] == "ada"


# Maintainers.


def test_a_maintainer_accepts_a_flagged_result_and_takes_it_down_again(client, engine):
    sent = publish(engine, Finding("suspicious", "cpu-time", "too fast", 1), name="fast")
    assert get(client, BOARD).rows == []
    assert "A maintainer will look at it" in get(client, f"/submissions/{sent}").text
    log_in(client, person(engine, "Mia", "maintainer"))
    review = get(client, "/review")
    assert "too fast" in review.text
    assert "seed 1" in review.text
    page = Read(form(client, "/review", "/review/decision", 422, id=str(sent), decision="accept", reason=" "), 422)
    assert "write one" in page.text
    form(client, "/review", "/review/decision", id=str(sent), decision="accept", reason="a fast machine")
    assert get(client, BOARD).rows == [sent]
    assert "a fast machine" in get(client, f"/submissions/{sent}").text
    form(client, f"/review?id={sent}", "/review/decision", id=str(sent), decision="reject", reason="not that fast")
    assert get(client, BOARD).rows == []
    page = get(client, f"/submissions/{sent}")
    assert "Not on the board" in page.text
    assert "not that fast" in page.text
    assert "submission 99" in get(client, "/review?id=99", 404).text


def test_only_maintainers_review(client, engine):
    assert client.get("/review").headers["location"] == "/login?next=%2Freview"
    log_in(client, person(engine, "Ada"))
    assert "no maintainer" in get(client, "/review", 403).text
    csrf = get(client, "/account").all("input", name="csrf")[0]["value"]
    for target in ("/review/decision", "/review/retry"):
        assert client.post(target, data={"csrf": csrf, "id": "1", "decision": "accept"}).status_code == 403
