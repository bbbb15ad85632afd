"""The API: requests, responses and permissions."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from leaderboard.board import queue
from leaderboard.board.details import details
from leaderboard.board.submissions import package_of as stored_package
from leaderboard.database.engine import reading
from leaderboard.verification.result import Finding
from leaderboard.web.guard.settings import Rate

from ..conftest import ledger_of, package_of, verification_of
from ..web_client import at_one_moment, client_of, person

ENV = "Digits-ALMA-v0"
ZIP = {"Content-Type": "application/zip"}
LARGEST = 2**31 - 1
both_databases = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture
def kind() -> str:
    return "sqlite"  # unless a test uses both


@pytest.fixture
def client(engine):
    with closing(client_of(engine)) as opened:
        yield opened


@pytest.fixture
def ada(engine):
    return person(engine, "Ada")


@pytest.fixture
def bob(engine):
    return person(engine, "Bob")


@pytest.fixture
def mia(engine):
    return person(engine, "Mia", "maintainer")


def send(client, who, package=None, **changes):
    content = (package or package_of(**changes)).to_zip()
    return client.post("/api/v1/submissions", content=content, headers=who.headers | ZIP)


def verify(engine, *findings, seeds=(0, 1, 2), comp=1000) -> None:
    queue.finish(engine, queue.claim(engine, "w"), verification_of(seeds, *findings, comp=comp))


def published(client, engine, who, seeds=(0, 1, 2), comp=1000, **changes) -> int:
    sent = send(client, who, seeds=list(seeds), **changes).json()["id"]
    verify(engine, seeds=seeds, comp=comp)
    return sent


def get(client, path, who=None):
    return client.get(f"/api/v1{path}", headers=who.headers if who else {})


def post(client, path, who=None, **body):
    return client.post(f"/api/v1{path}", json=body, headers=who.headers if who else {})


# Sending submissions.


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


# Lists and boards.


@both_databases
def test_submissions_are_listed_by_state_environment_and_sender(client, engine, ada, bob):
    ids = [send(client, who, name=name).json()["id"] for who, name in ((ada, "a"), (bob, "b"), (ada, "c"))]
    verify(engine)
    assert [line["id"] for line in get(client, "/submissions").json()["lines"]] == ids[::-1]
    queued = get(client, "/submissions?state=queued&limit=1&offset=1").json()
    assert ([line["name"] for line in queued["lines"]], queued["total"]) == (["b"], 2)
    assert get(client, f"/submissions?account_id={ada.id}&env_id={ENV}").json()["total"] == 2
    assert get(client, "/submissions?env_id=Nothing-v0").json()["total"] == 0


@both_databases
def test_standings_are_sorted_filtered_and_paged(client, engine, ada):
    published(client, engine, ada, name="a", comp=10, method="sm")
    published(client, engine, ada, name="b", comp=100_000, method="ens", seeds=(0, 1, 7))

    def names(query: str) -> str:
        return "".join(line["name"] for line in get(client, f"/boards/{ENV}/0.1?{query}").json()["lines"])

    assert names("sort=comp") == "ab"
    assert names("sort=comp&descending=true") == "ba"
    assert names("sort=comp&limit=1&offset=1") == "b"
    assert names("method=sm") == "a"
    assert names("budget_class=7") == "b"
    assert names("waiting_time=3") == ""
    (board,) = get(client, "/boards").json()
    assert (board["env_id"], board["submissions"], board["methods"]) == (ENV, 2, ["ens", "sm"])
    assert get(client, "/boards/Nothing-v0/9.9").json() == {"lines": [], "total": 0, "damaged": []}


def test_a_board_is_downloaded_as_a_file(client, engine, ada):
    import io

    import pyarrow.parquet

    assert get(client, f"/boards/{ENV}/0.1/export").status_code == 404
    published(client, engine, ada, name="=1+1", comp=10**20)
    response = get(client, f"/boards/{ENV}/0.1/export")
    assert response.headers["content-disposition"] == f'attachment; filename="{ENV}-0.1.csv"'
    assert "'=1+1" in response.text
    runs = get(client, f"/boards/{ENV}/0.1/export?format=json&runs=true").json()
    assert [run["comp"] for run in runs] == [20 * (10**20 + seed + 7) for seed in (0, 1, 2)]
    content = get(client, f"/boards/{ENV}/0.1/export?format=parquet").content
    assert pyarrow.parquet.read_table(io.BytesIO(content)).num_rows == 1


def test_exports_and_downloads_are_rate_limited(engine, ada):
    with closing(at_one_moment(client_of(engine, exports=Rate(1, 1), downloads=Rate(1, 2)))) as client:
        sent = published(client, engine, ada)
        assert [get(client, f"/boards/{ENV}/0.1/export").status_code for _ in range(2)] == [200, 429]
        paths = ("package", "audit", "package")
        assert [get(client, f"/submissions/{sent}/{path}").status_code for path in paths] == [200, 200, 429]
        assert get(client, f"/submissions/{sent}").status_code == 200


# One submission.


@both_databases
def test_numbers_beyond_64_bits_are_exact(client, engine, ada):
    sent = published(client, engine, ada, comp=10**20)
    assert get(client, f"/submissions/{sent}").json()["runs"][2]["comp"] == 20 * (10**20 + 9)


def test_a_ledger_has_one_line_per_tick(client, engine, ada):
    sent = published(client, engine, ada)
    response = get(client, f"/submissions/{sent}/ledgers/1")
    assert response.text == ledger_of(1).to_json()
    assert response.headers["content-disposition"] == f'attachment; filename="{sent}-seed-1.jsonl"'
    assert get(client, f"/submissions/{sent}/ledgers/9").status_code == 404


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


def test_the_audit_has_claimed_and_verified_runs(client, engine, ada, bob):
    files = dict(package_of().files) | {
        f"ledgers/seed-{n}.jsonl": ledger_of(n, comp=1).to_json().encode() for n in range(3)
    }
    sent = send(client, ada, type(package_of())(files)).json()["id"]
    claimed = ledger_of(1, comp=1).score()
    before = get(client, f"/submissions/{sent}/audit", ada).json()["runs"][1]
    assert (before["claimed"]["comp"], before["verified"]) == (claimed.comp, None)
    assert get(client, f"/submissions/{sent}/audit", bob).json()["runs"][1]["claimed"] is None
    verify(engine, Finding("suspicious", "claim-differs", "it claims <b>less</b>", seed=1))
    found = get(client, f"/submissions/{sent}/audit", ada).json()
    assert found["findings"] == [
        {"severity": "suspicious", "code": "claim-differs", "text": "it claims <b>less</b>", "seed": 1}
    ]
    assert found["runs"][1]["verified"]["comp"] == ledger_of(1).score().comp
    assert found["environment"]["torch"] == "2"


def test_tracebacks_workers_and_contacts_are_not_public(client, engine, ada, bob, mia):
    sent = send(client, ada, contact="ada@example.org").json()["id"]
    queue.fail(engine, queue.claim(engine, "host-7"), "Traceback: /secret/place", backoff_seconds=0)
    for who in (None, bob, ada):
        text = get(client, f"/submissions/{sent}", who).text
        assert "secret" not in text
        assert "host-7" not in text
        assert ("ada@example.org" in text) == (who is ada)
    found = get(client, f"/submissions/{sent}", mia).json()
    assert found["last_error"] == "Traceback: /secret/place"
    assert found["contact"] == "ada@example.org"
    assert "Traceback: /secret/place" in [event["text"] for event in found["events"]]


@both_databases
def test_a_maintainer_decides_about_flagged_results(client, engine, ada, mia):
    sent = send(client, ada).json()["id"]
    path = f"/submissions/{sent}/decision"
    assert post(client, path, mia, accept=True, reason="fine").status_code == 404  # there is no result
    verify(engine, Finding("suspicious", "cpu-time", "too little"))
    assert get(client, f"/boards/{ENV}/0.1").json()["total"] == 0
    assert post(client, path, accept=True, reason="fine").status_code == 401
    assert post(client, path, ada, accept=True, reason="fine").status_code == 403
    for reason in ("", "  ", "a\0b" * 2000, 7, None):
        assert post(client, path, mia, accept=True, reason=reason).status_code == 422
    response = post(client, path, mia, accept=True, reason="a fast machine")
    assert (response.json()["state"], response.json()["published"]) == ("verified", True)
    assert get(client, f"/boards/{ENV}/0.1").json()["total"] == 1
    assert post(client, path, mia, accept=False, reason="not that fast").json()["state"] == "rejected"
    submitting = person(engine, "Mo", "maintainer", scopes=["submit"])
    assert post(client, path, submitting, accept=True, reason="x").status_code == 403


def test_a_maintainer_retries_a_failed_verification(client, engine, ada, mia):
    sent = send(client, ada).json()["id"]
    assert post(client, f"/submissions/{sent}/retry", mia).status_code == 404
    queue.fail(engine, queue.claim(engine, "w"), "the disk was full", retry=False)
    assert post(client, f"/submissions/{sent}/retry", ada).status_code == 403
    assert post(client, f"/submissions/{sent}/retry", mia).json()["state"] == "queued"
    assert details(engine, sent).events[-1].kind == "queued again"


# Accounts and tokens.


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
    assert [token["name"] for token in listed.json()] == ["robot", "t"]
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


# Invalid requests.


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


def test_the_openapi_document_has_all_operations_and_error_responses(client):
    document = client.get("/api/v1/openapi.json").json()
    assert {"/api/v1/health", "/api/v1/submissions", "/api/v1/boards/{env_id}/{rules_version}"} <= set(
        document["paths"]
    )
    assert not any(path.startswith(("/docs", "/redoc", "/login")) for path in document["paths"])
    assert client.get("/docs").status_code == 404
    for operations in document["paths"].values():
        for operation in operations.values():
            assert {"400", "401", "422", "429", "503"} <= set(operation["responses"])
    assert "HTTPValidationError" not in json.dumps(document)


def test_the_openapi_document_describes_the_dataclasses_of_the_board(client):
    schemas = client.get("/api/v1/openapi.json").json()["components"]["schemas"]
    assert {"Account", "Happened", "Sent", "Standing", "Submission", "Token"} <= set(schemas)
    assert schemas["Standing"]["properties"]["comp"]["description"] == "FLOPs of the whole stream."
    assert schemas["Submission"]["properties"]["runs"]["maxItems"] == 20
    assert "contact" not in schemas["Manifest"]["properties"]
    assert schemas["Finding"]["required"] == ["severity", "code", "text", "seed"]
    assert not any("Attributes:" in schema["description"] for schema in schemas.values())
