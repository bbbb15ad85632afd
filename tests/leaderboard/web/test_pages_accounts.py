"""Accounts on the pages: registration, login, submission, tokens, review, and their permissions."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

from leaderboard.accounts.tokens import issue_token
from leaderboard.verification.result import Finding

from ..conftest import package_of
from ..page_reader import BOARD, Read, form, get, log_in, publish
from ..web_client import Person, client_of, person


def test_a_new_account_sends_a_submission_and_logs_out(client, engine):
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
    assert "Send as Ada" in get(client, "/submit").text
    assert client.get("/login").headers["location"] == "/account"


def test_an_invalid_submission_is_refused_and_not_stored(client, engine):
    log_in(client, person(engine, "Ada"))
    bad = package_of(name="", seeds=[1]).to_zip()
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("a.zip", bad)}), 422)
    assert "name" in page.text
    assert "seeds" in page.text
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("a.zip", b"no zip")}), 422)
    assert "pack the folder again" in page.text
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("", b"")}), 422)
    assert "the file is missing" in page.text
    assert "There are no submissions" in get(client, "/submissions").text


def test_an_unknown_caller_does_not_wait_for_an_upload(client):
    client.app.state.uploads = asyncio.Semaphore(0)  # no upload is allowed
    answer = client.post("/submit", files={"archive": ("a.zip", b"PK")})
    assert answer.status_code == 401
    assert "log in" in answer.text


def test_forms_from_other_sites_or_without_csrf_token_are_refused(client, engine):
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


def test_an_invalid_token_is_refused_and_a_login_never_leaves_the_board(client, engine):
    page = Read(form(client, "/login", "/login", 401, token="alma_wrong"), 401)
    assert "mistyped, revoked or expired" in page.text
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
    assert "cannot make or revoke tokens" not in page.text
    newest = next(a["value"] for a in page.all("input", name="token"))
    form(client, "/account", "/account/tokens/revoke", token=newest)
    assert client.get("/api/v1/me", headers=bearer).status_code == 401
    for values, message in (
        ({"name": "", "scope": "submit"}, "must have 1 to 80 characters"),
        ({"name": "x"}, "must be one or more of submit, manage"),
        ({"name": "x", "scope": "review"}, "must be one or more of"),
        ({"name": "x", "scope": "submit", "days": "soon"}, "days='soon'"),
    ):
        assert message in Read(form(client, "/account", "/account/tokens", 422, **values), 422).text


def test_a_session_that_may_not_manage_tokens_shows_only_its_own(client, engine):
    ada = person(engine, "Ada")
    issue_token(engine, ada.id, "laptop in office 3")
    submits = issue_token(engine, ada.id, "robot", scopes=["submit"])
    log_in(client, Person(ada.id, "Ada", submits.secret))
    page = get(client, "/account").text
    assert "robot" in page
    assert "laptop in office 3" not in page
    assert "logged in with the scope submit" in page
    assert "This session cannot make or revoke tokens" in page


def test_closed_registration_makes_no_account(engine):
    with closing(client_of(engine, registration="closed")) as client:
        page = get(client, "/register")
        assert "Only maintainers make accounts" in page.text
        assert not page.all("form", action="/register")
        csrf = get(client, "/login").all("input", name="csrf")[0]["value"]
        assert client.post("/register", data={"csrf": csrf, "name": "Eve"}).status_code == 403


def test_a_taken_name_is_refused(client, engine):
    person(engine, "Ada")
    page = Read(form(client, "/register", "/register", 409, name="ada"), 409)
    assert "the name is taken" in page.text
    assert page.all("input", name="name")[0]["value"] == "ada"


# Maintainers.


def test_a_maintainer_accepts_a_flagged_result_and_rejects_it_later(client, engine):
    sent = publish(engine, Finding("suspicious", "cpu-time", "too fast", 1), name="fast")
    assert get(client, BOARD).rows == []
    assert "A maintainer will decide" in get(client, f"/submissions/{sent}").text
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


def test_the_review_begins_with_the_oldest_results_and_links_to_the_others(client, engine, monkeypatch):
    monkeypatch.setattr("leaderboard.web.pages.review.MOST_SHOWN", 2)
    flags = Finding("suspicious", "cpu-time", "too fast")
    sent = [publish(engine, flags, name=f"n {number}", contact=f"{number}@example.org") for number in range(3)]
    page = get(client, "/submissions?state=flagged")
    assert [link for link in page.links if link in [f"/submissions/{id}" for id in sent]] == [
        f"/submissions/{id}" for id in reversed(sent)
    ]
    log_in(client, person(engine, "Mia", "maintainer"))
    page = get(client, "/review")
    shown = [link for link in page.links if re.fullmatch(r"/submissions/\d+", link)]
    assert shown == [f"/submissions/{id}" for id in sent[:2]]
    assert "All 3 flagged submissions" in page.text
    assert "/submissions?state=flagged" in page.links
    assert "0@example.org" in page.text
    assert "All 0" not in page.text


def test_a_number_of_a_review_that_is_no_number_is_invalid_and_not_missing(client, engine):
    log_in(client, person(engine, "Mia", "maintainer"))
    csrf = get(client, "/account").all("input", name="csrf")[0]["value"]
    for id, status, message in (("abc", 422, "id='abc': must be a whole number"), ("99", 404, "submission 99")):
        assert message in get(client, f"/review?id={id}", status).text
        for target in ("/review/decision", "/review/retry"):
            values = {"csrf": csrf, "id": id, "decision": "accept", "reason": "r"}
            assert message in Read(client.post(target, data=values), status).text


def test_only_maintainers_review(client, engine):
    assert client.get("/review").headers["location"] == "/login?next=%2Freview"
    log_in(client, person(engine, "Ada"))
    assert "not a maintainer" in get(client, "/review", 403).text
    csrf = get(client, "/account").all("input", name="csrf")[0]["value"]
    for target in ("/review/decision", "/review/retry"):
        assert client.post(target, data={"csrf": csrf, "id": "1", "decision": "accept"}).status_code == 403
