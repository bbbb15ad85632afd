"""The project's own agents on the board: from results that are shipped, or verified there."""

from __future__ import annotations

import ast
import dataclasses

import pytest

from leaderboard import queue
from leaderboard.baselines import Baseline, baselines, install, record, shipped
from leaderboard.check import check
from leaderboard.details import details, ledgers
from leaderboard.migrations import open_database
from leaderboard.standings import standings

from .conftest import verification_of

CHOSEN = [Baseline("Digits-ALMA-v0", "sm", (0, 1, 2), 5), Baseline("Digits-ALMA-v0", "ens", (0, 1, 2), None)]


@pytest.fixture
def results(tmp_path, monkeypatch) -> bytes:
    """What was recorded on a board where both were verified."""
    monkeypatch.setattr("leaderboard.baselines.baselines", lambda: CHOSEN)
    engine = open_database(f"sqlite:///{tmp_path / 'verified.db'}")
    assert install(engine, CHOSEN, results=record_of(engine, tmp_path)) == (0, 2)
    for comp in (100, 200):
        lease = queue.claim(engine, "a worker")
        queue.finish(engine, lease, verification_of(comp=comp))
    return record_of(engine, tmp_path)


def record_of(engine, folder) -> bytes:
    record(engine, folder / "results.xz")
    return (folder / "results.xz").read_bytes()


def test_shipped_results_are_on_a_new_board_as_they_were_verified(engine, results):
    assert install(engine, CHOSEN, results=results) == (2, 0)
    lines = standings(engine, "Digits-ALMA-v0").lines
    assert {(line.method, line.waiting_time) for line in lines} == {("sm", 5), ("ens", None)}
    found = details(engine, 1)
    assert (found.state, found.account, found.worker) == ("verified", "alma-env", "a worker")
    assert [kind for _, kind, _ in found.events] == ["submitted", "verified"]
    assert ledgers(engine, 1) == {run.seed: run.ledger for run in verification_of(comp=100).runs}
    assert queue.claim(engine, "another worker") is None


def test_what_is_there_stays_and_other_files_are_queued(engine, results):
    install(engine, CHOSEN[:1], results=results)
    assert install(engine, CHOSEN, results=results) == (1, 0)
    changed = dataclasses.replace(CHOSEN[0], settings={"width": 8})
    assert install(engine, [changed], results=results) == (0, 1)
    assert queue.claim(engine, "a worker").submission_id == 3


def test_a_result_is_not_adopted_for_a_job_that_a_worker_has_begun(engine, results):
    install(engine, CHOSEN[:1], results=b"")
    lease = queue.claim(engine, "a worker")
    assert install(engine, CHOSEN[:1], results=results) == (0, 0)
    queue.finish(engine, lease, verification_of(comp=300))
    assert ledgers(engine, 1) == {run.seed: run.ledger for run in verification_of(comp=300).runs}


@pytest.mark.parametrize("baseline", baselines(), ids=lambda baseline: f"{baseline.env} {baseline.manifest().name}")
def test_every_baseline_passes_the_check_and_says_what_it_does(baseline):
    report = check(baseline.package())
    assert (report.errors, report.warnings) == ((), ())
    call = ast.parse(report.package.files["agent.py"]).body[-1].body[-1].value
    said = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert said.pop("seed") == "env.run_seed"
    if baseline.wait is None:
        assert said.pop("policy") == "agents.Doubling()"
    hyperparameters = {key: str(value) for key, value in report.manifest.hyperparameters.items() if key != "policy"}
    assert said == hyperparameters
    assert report.manifest.waiting_time == baseline.wait


def test_what_is_shipped_is_of_today_s_files(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'board.db'}")
    adopted, queued = install(engine)
    assert (adopted, queued) == (len(baselines()), 0)
    assert shipped()
    for env in ("Digits-ALMA-v0", "MNIST-ALMA-v0"):
        lines = standings(engine, env).lines
        assert {line.method for line in lines} == {"sm", "ens", "umix", "gens", "gmoe"}
        assert all(details(engine, line.submission_id).environment["isolation"] == "isolated" for line in lines)
