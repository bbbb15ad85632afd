"""Sweeps without worker processes."""

from __future__ import annotations

import pytest

from agents.sweeps import local
from agents.sweeps.jobs import Environments, run_job


@pytest.fixture
def computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process compute the jobs of a sweep: a worker process imports for seconds before its first job."""

    def run_jobs(jobs, variables):
        environments, progress = Environments(), []
        for number, job in enumerate(jobs):
            yield run_job(number, job, environments, progress.append)
            yield from progress
            progress.clear()

    monkeypatch.setattr(local, "run_jobs", run_jobs)
