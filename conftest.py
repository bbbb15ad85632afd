"""Choose the number of test processes: up to four for the whole suite, one for a part of it and for benchmarks."""

from __future__ import annotations

import os

import pytest

if os.environ.get("PYTEST_XDIST_WORKER"):
    # Set before torch is imported: several processes with one thread per core each would slow each other down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for ``-n auto`` of pyproject.toml; 0 means this process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    benchmarks = config.option.markexpr not in ("", "not benchmark")
    return min(os.cpu_count() or 1, 4) if whole and not benchmarks else 0
