"""A submission with a run that failed, for which the machine may be at fault, can be verified again."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import func, select

from leaderboard.accounts.accounts import find_account
from leaderboard.accounts.tokens import issue_token
from leaderboard.board import queue
from leaderboard.board.details import details, ledgers
from leaderboard.board.results import decide
from leaderboard.board.submissions import submit
from leaderboard.database.engine import reading
from leaderboard.database.tables import AuditFinding, Result, ResultRun
from leaderboard.errors import NotFoundError, SubmissionError
from leaderboard.verification.result import Finding

from ..conftest import ledger_of, package_of, verification_of
from ..page_reader import form, get, log_in, publish
from ..web_client import client_of, person

NO_DISK = Finding("fatal", "failed", "the agent raised OSError: [Errno 28] No space left on device", seed=1)


@pytest.fixture
def failed(engine) -> int:
    """A submission whose first run is complete, and whose second run failed."""
    id = submit(engine, package_of()).id
    queue.finish(engine, queue.claim(engine, "full"), verification_of((0,), NO_DISK))
    return id


def test_lines_of_files_in_a_failure_are_for_the_sender(engine):
    text = "tick 3: the agent raised NameError: name 'f' is not defined\nFile agent.py, line 4\n  SECRET ** f"
    id = submit(engine, package_of(), "Ada").id
    queue.finish(engine, queue.claim(engine, "w"), verification_of((0,), Finding("fatal", "failed", text, seed=1)))
    with closing(client_of(engine)) as client:
        ada = find_account(engine, "Ada")
        headers = {"Authorization": f"Bearer {issue_token(engine, ada.id, 't').secret}"}
        for path in (f"/api/v1/submissions/{id}", f"/api/v1/submissions/{id}/audit"):
            assert client.get(path, headers=headers).json()["findings"][0]["text"] == text
            shown = client.get(path).json()["findings"][0]["text"]
            assert shown.endswith("name 'f' is not defined (its sender reads more with `alma-leaderboard status`)")
        assert "SECRET" not in get(client, f"/submissions/{id}").text


def test_the_new_result_replaces_the_one_with_the_failed_run(engine, failed):
    queue.retry(engine, failed)
    queue.finish(engine, queue.claim(engine, "whole"), verification_of())
    found = details(engine, failed)
    assert (found.state, found.published, found.worker, found.findings) == ("verified", True, "whole", ())
    assert ledgers(engine, failed) == {seed: ledger_of(seed) for seed in (0, 1, 2)}
    assert [event.kind for event in found.events][2:] == ["rejected", "queued again", "claimed", "verified"]
    with reading(engine) as session:
        rows = [session.scalar(select(func.count()).select_from(table)) for table in (Result, ResultRun, AuditFinding)]
    assert rows == [1, 3, 0]


def test_what_was_computed_stays_until_a_verification_is_complete(engine, failed):
    queue.retry(engine, failed)
    lease = queue.claim(engine, "whole")
    with pytest.raises(ValueError, match="verify each seed once"):
        queue.finish(engine, lease, verification_of((0, 1)))
    queue.fail(engine, lease, "the worker broke", retry=False)
    found = details(engine, failed)
    assert (found.state, found.findings, found.can_be_retried) == ("failed", (NO_DISK,), True)
    assert ledgers(engine, failed) == {0: ledger_of(0)}


def test_other_results_cannot_be_verified_again(engine):
    for name, finding in enumerate((Finding("info", "failed", "a note"), Finding("fatal", "other", "a broken rule"))):
        sent = publish(engine, finding, name=str(name))
        assert not details(engine, sent).can_be_retried
        with pytest.raises(NotFoundError, match="its job is finished and its result has no finding failed; only"):
            queue.retry(engine, sent)


def test_nobody_decides_about_a_result_that_will_be_replaced(engine, failed):
    mia = person(engine, "Mia", "maintainer")
    queue.retry(engine, failed)
    with pytest.raises(SubmissionError, match="it is queued, and a new result will replace this one; decide after"):
        decide(engine, failed, mia.name, accept=False, reason="it failed")
    assert details(engine, failed).state == "queued"


def test_a_maintainer_queues_it_again_on_the_page(engine, failed):
    with client_of(engine) as client:
        assert "a maintainer can queue it again" in get(client, f"/submissions/{failed}").text
        log_in(client, person(engine, "Mia", "maintainer"))
        form(client, f"/review?id={failed}", "/review/retry", id=str(failed))
        page = get(client, f"/submissions/{failed}").text
        assert "This submission is next in the queue" in page
        assert "The result below is of the verification before. The new one will replace it." in page
        assert not get(client, f"/review?id={failed}").all("form", action="/review/retry")
