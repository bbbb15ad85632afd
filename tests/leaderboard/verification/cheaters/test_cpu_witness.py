"""CPU seconds that the reported FLOPs do not explain."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from leaderboard.sandbox.process_times import tree_cpu_seconds
from leaderboard.verification import audit, cpu_witness
from leaderboard.verification.evidence import Evidence

from ...hand_written_programs import LINEAR, of, program
from .bare import bare_contestant
from .gallery import attack, case, codes
from .judged import deploy, findings

W = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("cpu", "flops"),
    [
        case("computes for a minute and charges 30,000 FLOPs", "finding `too-slow`", 20.0, 30_000),
        case("computes for an hour and charges a million FLOPs", "finding `too-slow`", 1200.0, 10**6),
        case("computes for an hour and charges 3 · 10⁸ FLOPs", "finding `too-slow`", 1200.0, 10**8),
    ],
)
def test_seconds_without_flops_are_found(env, cpu, flops, monkeypatch):
    monkeypatch.setattr(cpu_witness, "floor_rate", lambda: 3e6)
    monkeypatch.setattr(audit, "floor_rate", lambda: 3e6)
    assert "too-slow" in findings(env, program(tensors={"w": W}), cpu=cpu, flops=flops)


@attack("deploys a new graph at each tick to explain its seconds by tracing", "finding `too-slow`: 10 ms per operation")
def test_new_graphs_explain_few_seconds(env, monkeypatch):
    monkeypatch.setattr(cpu_witness, "floor_rate", lambda: 3e6)
    graphs = []
    for tick in range(3):
        negated = [[f"n{i}", "aten.neg.default", [of(f"n{i - 1}" if i else "logits")], {}] for i in range(100 + tick)]
        graphs.append(program([*LINEAR, *negated], {"w": W}, output=negated[-1][0]))
    run, refused = deploy(env, graphs, cpu=60.0, flops=10**6)
    assert not refused
    assert 20 + 3 < cpu_witness.overhead_seconds(run.evidence) < 20 + 3 + 3
    assert "too-slow" in codes(run)


@attack("charges more FLOPs than a core can execute in its seconds", "finding `too-fast`")
def test_flops_that_were_not_executed_are_found(env):
    assert "too-fast" in findings(env, program(tensors={"w": W}), cpu=0.1, flops=10**13)


# One process ends only after the count, because a process that ends during it may be missed once.
WAITS, DONE = "sys.stdin.read()", "print('done', flush=True)"


@attack("computes in a child process, on a machine without control groups", "the child's seconds count")
@pytest.mark.parametrize(
    ("child", "parent"), [(f"{DONE}\n{WAITS}", ""), ("", f"{DONE}\n{WAITS}")], ids=["runs", "ended"]
)
def test_the_seconds_of_children_count_without_a_control_group(child, parent):
    burn = f"import sys, time\nwhile time.process_time() < 0.5: pass\n{child}"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n{parent}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "done\n"
        counted = tree_cpu_seconds(process.pid)
        process.communicate("")
    assert counted >= 0.45  # CPU seconds, whatever the machine does meanwhile
    assert tree_cpu_seconds(process.pid) is None


def test_the_floor_rate_is_far_below_that_of_honest_runs():
    assert 0 < cpu_witness.floor_rate() < 1e8
    # The slowest of the baselines on the digits: a growing mixture that is traced at each tick.
    honest = [Evidence(tick, 0.35, True, 1, 2 * 10**7, traced=90) for tick in range(20)]
    assert cpu_witness.unexplained_seconds(honest, 7.0) < 0


@attack("trains outside of the meter in its sandbox", "its seconds are counted; finding `too-slow` beyond the overhead")
def test_seconds_in_the_sandbox_are_counted(run_bare, monkeypatch):
    for name in ("START_SECONDS", "TICK_SECONDS"):
        monkeypatch.setattr(cpu_witness, name, 0.0)
    monkeypatch.setattr(cpu_witness, "floor_rate", lambda: 1e9)
    sandboxed_run = run_bare(
        bare_contestant("""
        import time

        def play():
            enter(0)
            for tick in range(1, 4):
                start = time.process_time()
                while time.process_time() < start + 0.52:
                    pass
                enter(tick)
        """)
    )
    # The contestant goes on while the seconds before are read: milliseconds of a tick may count for the one before.
    assert sandboxed_run.failure is None
    assert audit.cpu_seconds(sandboxed_run) >= 1.5
    assert "too-slow" in codes(sandboxed_run)
