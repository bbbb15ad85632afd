"""Submissions are sent to the API, and their files are downloaded."""

from __future__ import annotations

from contextlib import closing

from leaderboard.board.submissions import package_of as stored_package
from leaderboard.database.engine import reading
from leaderboard.web.guard.settings import Rate

from ...conftest import package_of
from ...web_client import at_one_moment, client_of, person
from .calls import ENV, ZIP, both_databases, get, published, send, verify


@both_databases
def test_a_submission_is_sent_verified_and_shown_on_the_board(client, engine, ada):
    response = send(client, ada, name="number 1")
    made = response.json()
    assert (response.status_code, made["state"], made["new"]) == (201, "queued", True)
    assert response.headers["location"] == f"/api/v1/submissions/{made['id']}"
    assert get(client, "/health").json()["waiting"] == 1
    found = client.get(response.headers["location"]).json()
    assert (found["state"], found["account"], found["digest"]) == ("queued", "Ada", made["digest"])
    assert found["manifest"]["seeds"] == [0, 1, 2]
    verify(engine)
    found = client.get(response.headers["location"]).json()
    assert (found["state"], found["published"], len(found["runs"])) == ("verified", True, 3)
    assert [event["kind"] for event in found["events"]] == ["submitted", "claimed", "verified"]
    page = get(client, f"/boards/{ENV}/0.1").json()
    assert [(line["place"], line["submission_id"]) for line in page["lines"]] == [(1, made["id"])]
    assert page["lines"][0]["cer"]["n"] == 3


@both_databases
def test_equal_files_are_one_submission(client, ada, bob):
    first, again = send(client, ada), send(client, bob)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"new": False}


def test_an_invalid_archive_is_refused_with_all_its_problems(client, ada):
    response = send(client, ada, package_of(agent="x = 1\n", seeds=[0]))
    assert response.status_code == 422
    assert any("must have at least 3" in problem for problem in response.json()["problems"])
    assert any("no function make_agent" in problem for problem in response.json()["problems"])
    for content in (b"", b"PK\x03\x04", b"no archive"):
        assert client.post("/api/v1/submissions", content=content, headers=ada.headers | ZIP).status_code == 422
    for kind in ("multipart/form-data; boundary=x", "text/plain", ""):
        response = client.post("/api/v1/submissions", content=b"x", headers=ada.headers | {"Content-Type": kind})
        assert response.status_code == 415
    assert get(client, "/submissions").json() == {"lines": [], "total": 0, "damaged": []}


def test_an_oversized_archive_is_refused_before_it_is_read(engine, ada):
    with closing(client_of(engine, upload_bytes=1000)) as client:
        response = client.post("/api/v1/submissions", content=b"x" * 70_000, headers=ada.headers | ZIP)
        assert response.status_code == 413
        # Without a token the body is not read.
        assert client.post("/api/v1/submissions", content=b"x" * 60_000, headers=ZIP).status_code == 401


@both_databases
def test_the_number_of_submissions_per_day_is_limited(engine, ada, bob):
    with closing(client_of(engine, submissions_per_day=2)) as client:
        assert [send(client, ada, name=name).status_code for name in "abab"] == [201, 201, 200, 200]
        response = send(client, ada, name="c")
        assert response.status_code == 429
        assert 86_000 < int(response.headers["retry-after"]) <= 86_400
        assert "sent 2 submissions in 24 hours" in response.json()["detail"]
        assert send(client, bob, name="c").status_code == 201


def test_sending_needs_a_token_with_the_scope(client, engine):
    assert client.post("/api/v1/submissions", content=b"x", headers=ZIP).status_code == 401
    reader = person(engine, "Eve", scopes=["manage"])
    response = send(client, reader)
    assert response.status_code == 403
    assert "scope submit: the token does not have it" in response.json()["detail"]


def test_exports_and_downloads_are_rate_limited(engine, ada):
    with closing(at_one_moment(client_of(engine, exports=Rate(1, 1), downloads=Rate(1, 2)))) as client:
        sent = published(client, engine, ada)
        assert [get(client, f"/boards/{ENV}/0.1/export").status_code for _ in range(2)] == [200, 429]
        paths = ("package", "audit", "package")
        assert [get(client, f"/submissions/{sent}/{path}").status_code for path in paths] == [200, 200, 429]
        assert get(client, f"/submissions/{sent}").status_code == 200


def test_files_are_public_after_the_result_is_published(client, engine, ada, bob, mia):
    sent = send(client, ada).json()["id"]
    path = f"/submissions/{sent}/package"
    assert [get(client, path, who).status_code for who in (None, bob, ada, mia)] == [403, 403, 200, 200]
    verify(engine)
    response = get(client, path)
    with reading(engine) as session:
        assert response.content == stored_package(session, sent).to_zip()
    assert response.headers["content-disposition"] == f'attachment; filename="submission-{sent}.zip"'
    assert response.headers["content-type"] == "application/zip"
