"""Exit status and errors of the command alma sweep."""

from __future__ import annotations

import sys

from agents.cli import main
from agents.sweeps import local
from agents.sweeps.jobs import Failed
from alma_env.errors import how_to_install

from .small_runs import DIGITS


def test_exit_status_and_errors_of_the_command(tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    file = tmp_path / "grid.toml"
    file.write_text(f'env = "{DIGITS}"\nwait = 4\nset = {{ ticks = 4, epochs = 1 }}')
    for arguments, message in (
        ([], "no grid: give a TOML file, or options"),
        (["--wait", "2", "--seeds", "1"], "--wait --seeds without --env: a grid needs an environment"),
        (["--env", DIGITS, "--per-gpu", "0", "--dry-run"], "--per-gpu 0: must be at least 1; leave it out to assign"),
        (["--env", DIGITS, "--agent", "mine.py:make", "--seeds", "-1", "--dry-run"], "seed=-1: must be 0 or more"),
        ([str(file), "--wait", "2"], "--wait with"),
        ([str(file), "--data", "own.npz"], 'write env = "Arrays-ALMA-v0", and data = "own.npz" in [set]'),
        (["--env", DIGITS, "--wait", "2", "2"], "--wait 2 2: 2 occurs twice"),
        (["--env", DIGITS, "--wait", "5", "21"], "sm 32, wait 21, seed 0: wait=21: the stream has only 20"),
        (["--env", DIGITS, "--seeds", "3", "-1"], "seed=-1"),
        ([str(file), "--workers", "0"], "--workers 0: must be at least 1"),
        ([str(file), "--per-gpu", "2"], "--per-gpu 2"),
        ([str(file), "--threads", "0"], "threads=0: must be 1 to 1024"),
        ([str(file), "--ray", "local:x"], "--ray local:x"),
        ([str(file), "--track", "neptune"], "unknown tracker"),
    ):
        assert main(["sweep", *arguments, *out]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*/*"))


def test_a_missing_ray_is_named_with_the_command_that_installs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = ["--env", DIGITS, "--wait", "4", "--set", "ticks=4", "--ray", "auto", "--out", str(tmp_path)]
    assert main(["sweep", *arguments]) == 2
    assert how_to_install("cluster") in capsys.readouterr().err


def test_a_failed_run_is_exit_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        local, "run_jobs", lambda jobs, variables: (Failed(number, "reason") for number in range(len(jobs)))
    )
    assert main(["sweep", "--env", DIGITS, "--wait", "4", "20", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"{DIGITS}: sm 32, wait 20, seed 0: failed\nreason\n" in out
    assert "0 runs are finished" in out
