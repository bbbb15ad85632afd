"""Runs on a real local Ray cluster; another worker continues the run of a killed worker."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from rich.console import Console

import agents
from agents import RunSpec
from agents.sweeps.pending import plan
from agents.sweeps.sweep import sweep

from .holder import kill_in_the_middle

pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[cluster]'")

SHORT = RunSpec("Digits-ALMA-v0", width=4, wait=1, settings={"epochs": 1, "ticks": 4})


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's own files
def test_another_worker_continues_the_run_of_a_killed_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray's 15 leaves a worker 3 % of a core beside other tests
    for epochs in (16_000, 64_000, 256_000):  # on a busy machine, a run can end before this process sees its rows
        long = replace(SHORT, settings={"epochs": epochs, "ticks": 4})
        specs, out = [long, SHORT], tmp_path / str(epochs)
        folder = plan(specs, out).pending[long.digest()].folder
        with ThreadPoolExecutor() as pool:
            killer = pool.submit(kill_in_the_middle, folder, 2, 5)
            report = sweep(specs, out, ray="local:2", console=Console(file=io.StringIO()))
            assert report.failed == []
            before = killer.result()
        if before is not None:
            break
    assert report.finished.keys() == {spec.digest() for spec in specs}
    rows = (folder / "ledger.jsonl").read_text()
    assert before is not None, "the worker must be killed in the middle of the run"
    # The worker can die while it writes a row, which the next worker replaces.
    assert rows.startswith(before[: before.rfind("\n") + 1])
    assert 2 <= before.count("\n") < 5 == rows.count("\n")
    uninterrupted = agents.run(long.make_env(), long.make_agent(long.make_env()), 0)
    (run,) = [run for run in report.runs() if run.folder == folder]
    assert [row.error for row in run.ledger] == [row.error for row in uninterrupted]


def test_a_missing_cluster_is_reported_at_once(tmp_path):
    with pytest.raises(ValueError, match="--ray 127.0.0.1:9: no such cluster .*; start one, or write --ray local"):
        sweep([SHORT], tmp_path, ray="127.0.0.1:9")


def test_a_request_for_a_missing_gpu_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for per_gpu, message in ((2, "--per-gpu 2 with --ray local:1: PyTorch sees no GPU here"), (-1, "--per-gpu -1")):
        with pytest.raises(ValueError, match=message):
            sweep([SHORT], tmp_path, ray="local:1", per_gpu=per_gpu)


def test_a_request_for_more_cores_than_the_cluster_has_is_refused(tmp_path):
    spec = replace(SHORT, threads=4)
    with pytest.raises(ValueError, match="seed 0 with --ray local:2: it needs 4 cores, and the cluster has 2; give"):
        sweep([spec], tmp_path, ray="local:2")


def test_a_missing_cluster_of_the_environment_is_reported_before_anything_is_deleted(
    tmp_path, monkeypatch, computed_here
):
    report = sweep([SHORT], tmp_path, workers=1, console=Console(file=io.StringIO()))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ValueError, match="--ray 127.0.0.1:9: no such cluster"):
        sweep([SHORT], tmp_path, ray="auto", fresh=True)
    assert len(report.runs()) == 1
