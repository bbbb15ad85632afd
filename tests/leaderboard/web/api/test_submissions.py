"""Submissions in the API: lists, ledgers, audits, what is public, and the decisions of maintainers."""

from __future__ import annotations

from leaderboard.board import queue
from leaderboard.board.details import details
from leaderboard.verification.result import Finding

from ...conftest import ledger_of, package_of
from ...web_client import person
from .calls import ENV, both_databases, get, post, published, send, verify


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
def test_numbers_beyond_64_bits_are_exact(client, engine, ada):
    sent = published(client, engine, ada, comp=10**20)
    assert get(client, f"/submissions/{sent}").json()["runs"][2]["comp"] == 20 * (10**20 + 9)


def test_a_ledger_has_one_line_per_tick(client, engine, ada):
    sent = published(client, engine, ada)
    response = get(client, f"/submissions/{sent}/ledgers/1")
    assert response.text == ledger_of(1).to_json()
    assert response.headers["content-disposition"] == f'attachment; filename="{sent}-seed-1.jsonl"'
    assert get(client, f"/submissions/{sent}/ledgers/9").status_code == 404


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
