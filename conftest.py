"""How many processes run the tests, and what their garbage collectors see."""

from __future__ import annotations

import gc
import os

import pytest

if os.environ.get("PYTEST_XDIST_WORKER"):
    # Set before torch is imported: several processes with one thread per core each would slow each other down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for ``-n auto`` of pyproject.toml; 0 means this process.

    `PYTEST_XDIST_AUTO_NUM_WORKERS`, or up to four, run the whole suite, and one runs a part of it or the benchmarks.
    """
    most = int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or min(os.cpu_count() or 1, 4))
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    benchmarks = config.option.markexpr not in ("", "not benchmark")
    return most if whole and not benchmarks else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Hide what was loaded before this test from the garbage collector.

    An environment looks at all objects of the collector when it is reset, and the modules of a test process have a
    million objects. The objects of this test and its fixtures remain visible.
    """
    if len(gc.get_objects()) > 20_000:
        gc.collect()
        gc.freeze()
