"""Find the process that computes a run, for tests that end this process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agents.sweeps.run_index import rows_in


def holder_of(folder: Path, rows: int) -> int:
    """Wait until a run has a number of rows, and return the process that holds its lock."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("the process that holds a lock is only known from /proc")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if rows_in(folder) >= rows:
            for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
                try:
                    if os.readlink(descriptor) == str(folder / "lock"):
                        return int(descriptor.parts[2])
                except OSError:
                    continue  # the process has ended, or belongs to another user
        time.sleep(0.01)
    pytest.fail(f"no process computes {folder}")
