"""End the process that computes a run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from agents.sweeps.run_index import rows_in

LOCKS = Path("/proc/locks")


def holder_of(folder: Path, rows: int, complete: int | None = None) -> int | None:
    """Wait until a run has a number of rows, and return the process that holds its lock.

    Return None if the run has ``complete`` rows before the process is found.
    """
    if not LOCKS.exists():
        pytest.skip("the process that holds a lock is only known from /proc/locks")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if rows_in(folder) >= rows:
            inode = str((folder / "lock").stat().st_ino)
            # A line is `1: FLOCK ADVISORY WRITE 5196 fe:00:2548351 0 EOF`; that of a process that waits has `->`.
            for _number, kind, _mode, _access, process, file, *_ in map(str.split, LOCKS.read_text().splitlines()):
                if kind != "->" and file.split(":")[-1] == inode:
                    return int(process)
            if complete is not None and rows_in(folder) >= complete:
                return None
        time.sleep(0.01)
    pytest.fail(f"no process computes {folder}")


def kill_in_the_middle(folder: Path, rows: int, complete: int) -> str | None:
    """Kill the process of a run that has some rows, and return its ledger; None if the run was too fast."""
    holder = holder_of(folder, rows, complete)
    if holder is None:
        return None
    try:
        os.kill(holder, signal.SIGKILL)
    except ProcessLookupError:
        return None
    written = (folder / "ledger.jsonl").read_text()
    return written if written.count("\n") < complete else None
