"""A machine without isolation."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from leaderboard.sandbox import sandbox
from leaderboard.sandbox.sandbox import Limits
from leaderboard.verification.one_run import run_sandboxed

from ..threads import parties_in_threads
from .gallery import HONEST, attack


@attack("is verified on a machine that cannot isolate", "not started, unless limits only are allowed explicitly")
def test_without_isolation_a_run_needs_explicit_permission(env, tmp_path, monkeypatch):
    (tmp_path / "agent.py").write_text(textwrap.dedent(HONEST))
    monkeypatch.setattr(sandbox, "level_here", lambda: sandbox.LIMITED)
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(sandbox.SandboxError, match="no isolation on this machine"):
        run_sandboxed(env, Path(tmp_path), 0)
    assert os.listdir("/proc/self/fd") == descriptors
    with parties_in_threads(contestant=False):
        sandboxed_run = run_sandboxed(env, Path(tmp_path), 0, Limits(wall_seconds=600), allow_limited=True)
    assert sandboxed_run.level == "limited"
    assert sandboxed_run.failure is None
