"""Runs of cheaters with the real judge: in a real sandbox, or in threads of the test."""

from __future__ import annotations

import textwrap
from contextlib import AbstractContextManager

import pytest

import alma_env
from leaderboard.sandbox.sandbox import ISOLATED, Limits, level_here
from leaderboard.verification.one_run import SandboxedRun, run_sandboxed

from ..threads import parties_in_threads
from .bare import bare_contestants
from .gallery import HONEST


@pytest.fixture
def run(env, tmp_path):
    """Return a function that runs a submission in a sandbox: the source is appended to that of an honest learner."""
    return _runs(env, tmp_path, parties_in_threads(contestant=False))


@pytest.fixture
def run_in_threads(env, tmp_path):
    """Return a function like that of `run`, for attacks that do not concern the sandbox or its process."""
    return _runs(env, tmp_path, parties_in_threads())


@pytest.fixture
def run_bare(env, tmp_path):
    """Return a function like that of `run` for a program in the sandbox that needs no PyTorch; see `bare`."""
    return _runs(env, tmp_path, bare_contestants(), base="")


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    """Return a function like that of `run` for a run of several attacks, with an environment of some ticks."""

    def go(source: str, ticks: int, parties: AbstractContextManager[None] | None = None) -> SandboxedRun:
        env = alma_env.make("Digits-ALMA-v0", ticks=ticks)
        return _runs(env, tmp_path_factory.mktemp("run"), parties or parties_in_threads(contestant=False))(source)

    return go


def _runs(env, folder, parties, base=HONEST):
    if level_here() != ISOLATED:
        pytest.skip("bubblewrap is missing, or cannot create namespaces")

    def go(source: str, *, limits: Limits | None = None) -> SandboxedRun:
        submission = folder / "submission"
        submission.mkdir(exist_ok=True)
        (submission / "agent.py").write_text(textwrap.dedent(base) + textwrap.dedent(source))
        with parties:
            return run_sandboxed(env, submission, 0, limits or Limits(wall_seconds=600))

    return go
