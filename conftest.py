"""In how many processes the tests run: the whole suite on all cores, up to four; some of it, and benchmarks, in one."""

from __future__ import annotations

import os

import pytest

if os.environ.get("PYTEST_XDIST_WORKER"):
    # Before anything imports torch: several processes, each with a thread per core, would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What ``-n auto`` of pyproject.toml means; 0 is this process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    measures = config.option.markexpr not in ("", "not benchmark")
    return min(os.cpu_count() or 1, 4) if whole and not measures else 0
