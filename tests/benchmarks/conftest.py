"""What all benchmarks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def postgresql_for_benchmarks() -> Iterator[Callable[[], str]]:
    """Start a PostgreSQL of the benchmark's own, and give its URL; skips the benchmark where there can be none."""
    from tests.leaderboard import postgresql

    with ExitStack() as opened:
        yield lambda: opened.enter_context(postgresql.cluster())
