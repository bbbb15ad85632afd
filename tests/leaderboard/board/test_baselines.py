"""Baselines on the board: with shipped results, or queued for verification."""

from __future__ import annotations

import ast
import dataclasses
from datetime import UTC, datetime

import pytest

from leaderboard.board import queue
from leaderboard.board.baselines import Baseline, baselines, install, record, shipped
from leaderboard.board.details import details, ledgers
from leaderboard.board.standings import standings
from leaderboard.database.migrations import open_database
from leaderboard.submission.static_check import check

from ..conftest import verification_of

CHOSEN = [Baseline("Digits-ALMA-v0", "sm", (0, 1, 2), 5), Baseline("Digits-ALMA-v0", "ens", (0, 1, 2), None)]


@pytest.fixture
def results(tmp_path, monkeypatch) -> bytes:
    """Results that were recorded on a board after the verification of both baselines."""
    monkeypatch.setattr("leaderboard.board.baselines.baselines", lambda: CHOSEN)
    engine = open_database(f"sqlite:///{tmp_path / 'verified.db'}")
    assert install(engine, CHOSEN, results=record_of(engine, tmp_path)) == (0, 2)
    for comp in (100, 200):
        lease = queue.claim(engine, "a worker")
        found = verification_of(comp=comp)
        runs = [dataclasses.replace(run, cpu_seconds=run.seed + 0.5) for run in found.runs]
        queue.finish(engine, lease, dataclasses.replace(found, runs=tuple(runs)))
    return record_of(engine, tmp_path)


def record_of(engine, folder) -> bytes:
    record(engine, folder / "results.xz")
    return (folder / "results.xz").read_bytes()


def test_shipped_results_are_on_a_new_board(engine, results):
    assert install(engine, CHOSEN, results=results) == (2, 0)
    lines = standings(engine, "Digits-ALMA-v0").lines
    assert {(line.method, line.waiting_time) for line in lines} == {("sm", 5), ("ens", None)}
    found = details(engine, 1)
    assert (found.state, found.account, found.worker) == ("verified", "alma-env", "a worker")
    assert [entry.kind for entry in found.events] == ["submitted", "verified"]
    assert ledgers(engine, 1) == {run.seed: run.ledger for run in verification_of(comp=100).runs}
    assert [run.cpu_seconds for run in found.runs] == [0.5, 1.5, 2.5]
    assert queue.claim(engine, "another worker") is None


def test_installed_baselines_stay_and_changed_baselines_are_queued(engine, results):
    install(engine, CHOSEN[:1], results=results)
    assert install(engine, CHOSEN, results=results) == (1, 0)
    changed = dataclasses.replace(CHOSEN[0], settings={"width": 8})
    assert install(engine, [changed], results=results) == (0, 1)
    assert queue.claim(engine, "a worker").submission_id == 3


def test_a_shipped_result_replaces_no_job_that_was_queued_or_started_without_it(engine, results):
    assert install(engine, CHOSEN[:1], results=b"") == (0, 1)
    assert install(engine, CHOSEN[:1], results=results) == (0, 0)
    queue.release(engine, queue.claim(engine, "a worker"))
    assert queue.adopt(engine, 1, verification_of(), "elsewhere", datetime.now(UTC)) is False
    lease = queue.claim(engine, "a worker")
    assert install(engine, CHOSEN[:1], results=results) == (0, 0)
    queue.finish(engine, lease, verification_of(comp=300))
    assert ledgers(engine, 1) == {run.seed: run.ledger for run in verification_of(comp=300).runs}


@pytest.mark.parametrize("baseline", baselines(), ids=lambda baseline: f"{baseline.env} {baseline.manifest().name}")
def test_every_baseline_passes_the_check_and_its_manifest_equals_its_code(baseline):
    report = check(baseline.package())
    assert (report.errors, report.warnings) == ((), ())
    call = ast.parse(report.package.files["agent.py"]).body[-1].body[-1].value
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert keywords.pop("seed") == "env.run_seed"
    if baseline.wait is None:
        assert keywords.pop("policy") == "agents.Doubling()"
    hyperparameters = {key: str(value) for key, value in report.manifest.hyperparameters.items() if key != "policy"}
    assert keywords == hyperparameters
    assert report.manifest.waiting_time == baseline.wait


def test_shipped_results_belong_to_the_current_files(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'board.db'}")
    adopted, queued = install(engine)
    assert (adopted, queued) == (len(baselines()), 0)
    assert shipped()
    for env in ("Digits-ALMA-v0", "MNIST-ALMA-v0"):
        lines = standings(engine, env).lines
        assert {line.method for line in lines} == {"sm", "ens", "umix", "gens", "gmoe"}
        for found in (details(engine, line.submission_id) for line in lines):
            assert found.environment["isolation"] == "isolated"
            counted = [f"seed {run.seed}: {run.cpu_seconds:.1f} CPU seconds after tick 0" for run in found.runs]
            assert all(text in found.environment["used"] for text in counted)
