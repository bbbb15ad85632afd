"""A sweep that is stopped leaves no process, prints the failures so far, and can be continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import pytest

from agents.cli import main
from agents.sweeps import local, run_index
from agents.sweeps.jobs import Failed
from agents.sweeps.pending import plan
from agents.sweeps.sweep import sweep

from .holder import holder_of
from .small_runs import DIGITS, ENDLESS, GOOD, new_console


@pytest.mark.parametrize(
    ("ended_by", "status", "printed"),
    [(signal.SIGINT, 130, "stopped; the same command goes on from here\n"), (signal.SIGKILL, -signal.SIGKILL, "")],
)
def test_a_stopped_sweep_leaves_no_process_and_its_runs_continue(tmp_path, capsys, ended_by, status, printed):
    for epochs in (2_000, 8_000, 32_000, 128_000):  # on a busy machine, a run can end before this process sees its rows
        out = tmp_path / str(epochs)
        grid = ["--width", "4", "--wait", "1", "--set", f"epochs={epochs}", "ticks=8"]
        spec = replace(ENDLESS, settings={"epochs": epochs, "ticks": 8})
        folder = plan([spec], out).pending[spec.digest()].folder
        process, err = _stopped_sweep(grid, out, folder, ended_by)
        if (rows := run_index.rows_in(folder)) < 9:
            break
    assert (process.returncode, err) == (status, printed)
    deadline = time.monotonic() + 60
    while _is_alive(process.pid):
        assert time.monotonic() < deadline, "a process of the sweep is still alive"
        time.sleep(0.05)
    assert 2 <= rows < 9, "the sweep must be stopped in the middle of the run"
    before = (folder / "ledger.jsonl").read_text()
    assert main(["sweep", "--env", DIGITS, *grid, "--out", str(out), "--dry-run"]) == 0
    assert "0 done, 1 started, 0 to run" in capsys.readouterr().out
    assert main(["run", DIGITS, *grid, "--out", str(out)]) == 0
    assert (folder / "ledger.jsonl").read_text().startswith(before[: before.rfind("\n") + 1])
    assert run_index.is_finished(folder)


def _stopped_sweep(grid, out, folder, ended_by) -> tuple[subprocess.Popen, str]:
    """Start a sweep, and stop it when its run has two rows; return the ended process and its messages."""
    command = [sys.executable, "-m", "agents", "sweep", "--env", DIGITS, *grid, "--out", str(out)]
    # A background process of a shell ignores interrupts, and so do the processes that it starts.
    receive_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=receive_interrupts
    ) as process:
        if holder_of(folder, 2, complete=9) is not None:
            # A terminal interrupts the workers, too; a kill does not.
            (os.killpg if ended_by == signal.SIGINT else os.kill)(process.pid, ended_by)
        _, err = process.communicate()
    return process, err.decode()


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_failures_are_printed_also_when_a_sweep_is_stopped(tmp_path, monkeypatch):
    def stopped(jobs, variables):
        yield Failed(0, "Traceback of the first\nValueError: reason")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run_jobs", stopped)
    console = new_console()
    with pytest.raises(KeyboardInterrupt):
        sweep([GOOD, replace(GOOD, seed=1)], tmp_path, console=console)
    assert "Traceback of the first" in console.file.getvalue()
