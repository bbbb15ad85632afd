"""Runs of cheaters in a real sandbox, with the real judge."""

from __future__ import annotations

import textwrap

import pytest

import alma_env
from leaderboard.sandbox.sandbox import ISOLATED, Limits, level_here
from leaderboard.verification.one_run import SandboxedRun, run_sandboxed

from .gallery import HONEST


@pytest.fixture
def run(env, tmp_path):
    """Return a function that runs a submission: the source is appended to that of an honest learner."""
    return _runs(env, tmp_path)


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    """Return a function like that of `run` for a run of several attacks, with an environment of some ticks."""

    def go(source: str, ticks: int) -> SandboxedRun:
        env = alma_env.make("Digits-ALMA-v0", ticks=ticks)
        return _runs(env, tmp_path_factory.mktemp("run"))(source)

    return go


def _runs(env, folder):
    if level_here() != ISOLATED:
        pytest.skip("bubblewrap is missing, or cannot create namespaces")

    def go(source: str, *, base: str = HONEST, limits: Limits | None = None) -> SandboxedRun:
        submission = folder / "submission"
        submission.mkdir(exist_ok=True)
        (submission / "agent.py").write_text(textwrap.dedent(base) + textwrap.dedent(source))
        return run_sandboxed(env, submission, 0, limits or Limits(wall_seconds=600))

    return go
