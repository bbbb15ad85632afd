"""The overhead of the sandbox on the wall time of a run: a constant to start two processes, and a share of the rest."""

from __future__ import annotations

import statistics
import time

import pytest

import agents
import alma_env

pytestmark = pytest.mark.benchmark

REPEATS = 3
AGENT = "import agents\n\ndef make_agent(env):\n    return agents.make('sm', env, seed=env.run_seed, **{settings!r})\n"
SHORT, LONG = {"epochs": 1}, {"Digits-ALMA-v0": {"epochs": 500}, "MNIST-ALMA-v0": {"epochs": 10, "width": 64}}
COLUMNS = ("tick", "error", "parameters", "buffers", "inference_flops", "flops", "paper_flops", "refused")


@pytest.mark.parametrize(("id", "wait"), [("Digits-ALMA-v0", 1), ("Digits-ALMA-v0", 5), ("MNIST-ALMA-v0", 10)])
def test_a_run_in_the_sandbox_against_the_same_run_outside(id, wait, tmp_path, real_data):
    from leaderboard.sandbox.sandbox import ISOLATED, level_here

    if level_here() != ISOLATED:
        pytest.skip("bubblewrap is missing or cannot create namespaces")
    if id.startswith("MNIST"):
        real_data("MNIST")
    env = alma_env.make(id)
    short = {"wait": env.ticks, "engine": "plain"} | SHORT
    long = {"wait": wait, "engine": "plain"} | LONG[id]
    outside(env, short)  # imports everything
    constant = statistics.median(sandboxed(env, short, tmp_path)[0] - outside(env, short)[0] for _ in range(REPEATS))
    pairs = []
    for _ in range(REPEATS):
        (local_seconds, local), (sandbox_seconds, verified) = outside(env, long), sandboxed(env, long, tmp_path)
        assert columns(local) == columns(verified)
        pairs.append((local_seconds, sandbox_seconds))
    shares = sorted((sandbox - local - constant) / local for local, sandbox in pairs)
    local, sandbox = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    print(
        f"\n{id}, sm, w = {wait}, {LONG[id]}: outside {local:.1f} s, in the sandbox {sandbox:.1f} s; a constant of "
        f"{constant:.2f} s and {statistics.median(shares):+.1%} ({shares[0]:+.1%} to {shares[-1]:+.1%}) of the run"
    )


def outside(env, settings):
    start = time.perf_counter()
    ledger = agents.run(env, agents.make("sm", env, seed=0, **settings), seed=0)
    return time.perf_counter() - start, ledger


def sandboxed(env, settings, folder):
    from leaderboard.verification.one_run import run_sandboxed

    (folder / "agent.py").write_text(AGENT.format(settings=settings))
    start = time.perf_counter()
    played = run_sandboxed(env, folder, 0)
    assert played.failure is None
    return time.perf_counter() - start, played.ledger


def columns(ledger):
    return [[getattr(row, name) for name in COLUMNS] for row in ledger]
