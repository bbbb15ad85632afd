"""Excessive use of time, memory, processes and output."""

from __future__ import annotations

import textwrap
import time

import pytest

from leaderboard.sandbox.sandbox import Limits
from leaderboard.verification import one_run
from leaderboard.verification.judge import Judge

from .bare import bare_contestant
from .gallery import attack, case, codes

GREEDY = {
    "loops without end": ("while True: pass", Limits()),
    "forks without end": ("while True:\n    os.fork()", Limits(processes=64)),
    "allocates 100 GB of memory": ("keep = b'x' * (100 * 2**30)", Limits(memory=2 * 2**30)),
    "writes a file without end": (
        "with open('/scratch/x', 'wb') as f:\n    while True: f.write(bytes(2**24))",
        Limits(scratch=2**26),
    ),
    "exits early": ("os._exit(0)", Limits()),
}
FAILS = {
    "raises an exception": ("raise ValueError('no more')", "no more"),
    "deploys NaN": ("self.predictor.layer.weight.data.fill_(float('nan'))", "NaN"),
}


class ImpatientJudge(Judge):
    """A judge that waits for two seconds only, from the moment when the greedy learner has what it waits for."""

    def _enter(self, fields):
        super()._enter(fields)
        if len(self.ledger) == 2:
            self.deadline = time.monotonic() + 2


@pytest.mark.parametrize(
    ("code", "limits"),
    [case(name, "the run ends; finding `failed`", code, limits) for name, (code, limits) in GREEDY.items()],
)
def test_excessive_use_of_resources_ends_only_the_run(run_bare, code, limits, groups, monkeypatch):
    endless = code == GREEDY["loops without end"][0]
    if endless:
        monkeypatch.setattr(one_run, "Judge", ImpatientJudge)
    play = "def play():\n    enter(0)\n    enter(1)\n" + textwrap.indent(code, " " * 4)
    sandboxed_run = run_bare(bare_contestant(play), limits=limits)
    assert sandboxed_run.failure is not None
    assert ("took too long" in sandboxed_run.failure) == endless
    assert len(sandboxed_run.ledger) == 2
    assert "failed" in codes(sandboxed_run)
    assert not [folder for group in groups if group for folder in group.folders if folder.exists()]


@pytest.mark.parametrize(
    ("code", "reason"), [case(name, "the run ends; finding `failed`", *values) for name, values in FAILS.items()]
)
def test_an_agent_that_fails_ends_only_the_run(run, code, reason):
    failed = run(f"""
class Failing(Learner):
    def before(self, observation):
        if self.env.tick == 1:
            {code}

def make_agent(env):
    return Failing(env)
""")
    assert reason in failed.failure
    assert len(failed.ledger) == 2
    assert "failed" in codes(failed)


@attack("prints 300 MiB", "only the first and the last 128 KiB are kept")
def test_only_a_part_of_a_long_output_is_kept(run_bare):
    sandboxed_run = run_bare(
        bare_contestant("""
        def play():
            for _ in range(300):
                print("x" * 2**20, flush=True)
            for tick in range(4):
                enter(tick)
        """)
    )
    assert sandboxed_run.failure is None
    assert len(sandboxed_run.output) < 2**20
    assert "bytes left out" in sandboxed_run.output
