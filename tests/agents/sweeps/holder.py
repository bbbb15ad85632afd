"""Which process makes a run: for tests that end it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agents.experiments.folders import rows_in


def holder_of(folder: Path, rows: int) -> int:
    """The process that holds a run's lock, once so many rows are written."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("without /proc nobody knows who holds a lock")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if rows_in(folder) >= rows:
            for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
                try:
                    if os.readlink(descriptor) == str(folder / "lock"):
                        return int(descriptor.parts[2])
                except OSError:
                    continue  # of a process that has ended, or of somebody else's
        time.sleep(0.01)
    pytest.fail(f"nobody makes {folder}")
