"""Invalid ids, texts, bodies, methods and paths get an error response."""

from __future__ import annotations

from .calls import ENV, LARGEST, both_databases, get, post


@both_databases
def test_invalid_ids_are_refused(client, mia):
    for id in ("0", "-1", str(LARGEST + 1), str(2**63), "9" * 5000, "1e3", "%00", "x", "1%00", "%ff"):
        for path in ("", "/package", "/audit", "/ledgers/1"):
            assert get(client, f"/submissions/{id}{path}", mia).status_code in (404, 422)
        assert get(client, f"/submissions/1/ledgers/{id}", mia).status_code in (404, 422)
        assert post(client, f"/accounts/{id}/enable", mia).status_code in (404, 422)
        assert client.delete(f"/api/v1/tokens/{id}", headers=mia.headers).status_code in (404, 422)


@both_databases
def test_invalid_texts_are_refused(client):
    for text in ("%00", "a%00b", "%ed%a0%80", "%ff", "x" * 5000, "'; DROP TABLE results; --", "%0a"):
        for path in (
            f"/boards/{text}/0.1",
            f"/boards/{ENV}/{text}",
            f"/boards/{ENV}/0.1?method={text}",
            f"/boards/{ENV}/0.1?sort={text}",
            f"/submissions?state={text}",
            f"/submissions?env_id={text}",
        ):
            assert get(client, path).status_code in (404, 422), path


def test_invalid_json_is_refused_with_a_json_response(client, ada):
    for body in (
        b"",
        b"{",
        b"\xff",
        b'{"name": "\\ud800"}',
        b'{"name": NaN}',
        b"[" * 100_000,
        b'{"\\ud800": 1}',
        b"9" * 5000,
    ):
        response = client.post(
            "/api/v1/tokens", content=body[:60_000], headers=ada.headers | {"Content-Type": "application/json"}
        )
        assert response.status_code in (400, 422), body[:20]
        assert response.json()["problems"]


def test_other_methods_and_paths_get_a_json_response(client):
    response = client.put("/api/v1/boards")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
    assert client.put("/api/v1/submissions").headers["allow"] == "GET, HEAD, POST"
    assert client.options("/api/v1/tokens/1").headers["allow"] == "DELETE"
    assert response.json()["problems"]
    assert client.get("/api/v1/nothing").json()["problems"]
    assert client.get("/api/v1/boards/").status_code == 404  # no redirect to the address in the Host header
    assert client.head("/api/v1/boards").status_code == 200
