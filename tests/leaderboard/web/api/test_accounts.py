"""Accounts, tokens and sessions in the API."""

from __future__ import annotations

from ...web_client import person
from .calls import LARGEST, both_databases, get, post


@both_databases
def test_tokens_are_made_listed_and_revoked(client, engine, ada, bob):
    assert get(client, "/me", ada).json() == {
        "account_id": ada.id,
        "name": "Ada",
        "role": "submitter",
        "scopes": ["submit", "manage"],
    }
    made = post(client, "/tokens", ada, name="robot", scopes=["submit"], days=7).json()
    assert (made["name"], made["scopes"]) == ("robot", ["submit"])
    robot = {"Authorization": f"Bearer {made['secret']}"}
    assert client.get("/api/v1/me", headers=robot).json()["scopes"] == ["submit"]
    assert client.get("/api/v1/tokens", headers=robot).status_code == 403
    listed = get(client, "/tokens", ada)
    assert [token["name"] for token in listed.json()] == ["robot", "first token"]
    assert made["secret"] not in listed.text
    path = f"/api/v1/tokens/{made['id']}"
    assert client.delete(path, headers=bob.headers).status_code == 404
    assert client.delete(path, headers=ada.headers).status_code == 204
    assert client.get("/api/v1/me", headers=robot).status_code == 401


def test_a_token_makes_tokens_with_at_most_its_own_scopes(client, engine, mia):
    small = person(engine, "Mo", "maintainer", scopes=["manage"])
    assert post(client, "/tokens", small, name="x", scopes=["review"]).status_code == 422
    assert post(client, "/tokens", small, name="x").json()["scopes"] == ["manage"]
    assert post(client, "/tokens", mia, name="x").json()["scopes"] == ["submit", "review", "manage"]


def test_an_invalid_token_request_is_refused(client, ada):
    for body in (
        {},
        {"name": ""},
        {"name": " "},
        {"name": "a\nb"},
        {"name": "a\u202eb"},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["everything"]},
        {"name": "x", "days": 0},
        {"name": "x", "days": 1e300},
        {"name": "x", "role": "king"},
        {"name": ["x"]},
    ):
        response = post(client, "/tokens", ada, **body)
        assert response.status_code == 422, body
        assert response.json()["problems"]


def test_maintainers_make_and_disable_accounts(client, engine, ada, mia):
    assert post(client, "/accounts", ada, name="Cy").status_code == 403
    made = post(client, "/accounts", mia, name="Cy").json()
    headers = {"Authorization": f"Bearer {made['token']['secret']}"}
    assert client.get("/api/v1/me", headers=headers).json()["name"] == "Cy"
    assert post(client, "/accounts", mia, name="cy").status_code == 409
    accounts = get(client, "/accounts?limit=2&offset=1", mia).json()
    assert ([one["name"] for one in accounts["lines"]], accounts["total"]) == (["Mia", "Cy"], 3)
    number = made["account"]["id"]
    assert post(client, f"/accounts/{number}/disable", ada).status_code == 403
    assert post(client, f"/accounts/{number}/disable", mia).json()["disabled_at"]
    assert client.get("/api/v1/me", headers=headers).status_code == 401
    assert post(client, f"/accounts/{number}/enable", mia).json()["disabled_at"] is None
    assert client.get("/api/v1/me", headers=headers).status_code == 200
    assert post(client, f"/accounts/{mia.id}/disable", mia).status_code == 409
    assert post(client, f"/accounts/{LARGEST}/disable", mia).status_code == 404


def test_a_session_needs_the_csrf_token_to_change_something(engine, client, ada):
    from leaderboard.accounts import tokens
    from leaderboard.web.guard.identity import _derived

    _, secret = tokens.open_session(engine, ada.token)
    client.cookies["alma-session"] = secret
    assert get(client, "/me").json()["name"] == "Ada"
    assert post(client, "/tokens", name="x").status_code == 403
    sent = client.post("/api/v1/tokens", json={"name": "x"}, headers={"X-CSRF-Token": _derived(secret)})
    assert sent.status_code == 201
