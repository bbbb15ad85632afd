"""A real local Ray: what its workers make, and that another worker goes on where one was killed."""

from __future__ import annotations

import io
import os
import signal
import threading
from dataclasses import replace

import pytest
from rich.console import Console

import agents
from agents import RunSpec
from agents.experiments.plan import plan
from agents.experiments.sweep import sweep

from .holder import holder_of

pytest.importorskip("ray", reason="Ray is not installed: pip install 'alma-env[cluster]'")

LONG = RunSpec("Digits-ALMA-v0", width=4, wait=1, settings={"epochs": 300, "ticks": 4}, engine="plain")
SHORT = replace(LONG, settings={"epochs": 1, "ticks": 4})


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's own files
def test_a_run_whose_worker_is_killed_goes_on_in_another(tmp_path):
    specs = [LONG, SHORT, replace(SHORT, seed=1)]
    folder = plan(specs, tmp_path).pending[LONG.digest()].folder
    before = []

    def kill() -> None:
        worker = holder_of(folder, 2)
        before.append((folder / "ledger.jsonl").read_text())
        os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    report = sweep(specs, tmp_path, ray="local:2", console=Console(file=io.StringIO()))
    killer.join()
    assert report.failed == []
    assert report.finished.keys() == {spec.digest() for spec in specs}
    rows = (folder / "ledger.jsonl").read_text()
    assert rows.startswith(before[0])
    assert 2 <= before[0].count("\n") < 5 == rows.count("\n")
    whole = agents.run(LONG.make_env(), LONG.make_agent(LONG.make_env()), 0)
    (run,) = [run for run in report.runs() if run.folder == folder]
    assert [row.error for row in run.ledger] == [row.error for row in whole]


def test_a_cluster_that_is_not_there_is_told_at_once(tmp_path):
    with pytest.raises(ValueError, match="--ray 127.0.0.1:9: no such cluster .*; start one, or write --ray local"):
        sweep([SHORT], tmp_path, ray="127.0.0.1:9")


def test_a_gpu_that_would_be_waited_for_for_ever_is_asked_for_in_vain(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for per_gpu, message in ((2, "--per-gpu 2 beside --ray local:1: PyTorch sees no GPU here"), (-1, "--per-gpu -1")):
        with pytest.raises(ValueError, match=message):
            sweep([SHORT], tmp_path, ray="local:1", per_gpu=per_gpu)


def test_cores_that_would_be_waited_for_for_ever_are_asked_for_in_vain(tmp_path):
    spec = replace(SHORT, threads=4)
    with pytest.raises(ValueError, match="seed 0 with --ray local:2: it wants 4 cores, and there are 2; give"):
        sweep([spec], tmp_path, ray="local:2")


def test_a_cluster_of_the_environment_that_is_not_there_is_told_before_anything_is_deleted(tmp_path, monkeypatch):
    made = sweep([SHORT], tmp_path, workers=1, console=Console(file=io.StringIO()))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ValueError, match="--ray 127.0.0.1:9: no such cluster"):
        sweep([SHORT], tmp_path, ray="auto", fresh=True)
    assert len(made.runs()) == 1
