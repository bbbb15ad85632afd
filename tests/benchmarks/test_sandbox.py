"""What the sandbox adds to a run's wall time: a constant, for two processes that start, and a share of the rest."""

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
def test_a_run_in_the_sandbox_and_the_same_run_here(id, wait, tmp_path, real_data):
    from leaderboard.sandbox import ISOLATED, level_here

    if level_here() != ISOLATED:
        pytest.skip("bubblewrap is missing, or may not make namespaces")
    if id.startswith("MNIST"):
        real_data("MNIST")
    env = alma_env.make(id)
    short = {"wait": env.ticks, "engine": "plain"} | SHORT
    long = {"wait": wait, "engine": "plain"} | LONG[id]
    here(env, short)  # what is imported late is imported now
    constant = statistics.median(inside(env, short, tmp_path)[0] - here(env, short)[0] for _ in range(REPEATS))
    pairs = []
    for _ in range(REPEATS):
        (mine, local), (theirs, verified) = here(env, long), inside(env, long, tmp_path)
        assert plain(local) == plain(verified)
        pairs.append((mine, theirs))
    shares = sorted((theirs - mine - constant) / mine for mine, theirs in pairs)
    mine, theirs = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    print(
        f"\n{id}, sm, w = {wait}, {LONG[id]}: here {mine:.1f} s, in the sandbox {theirs:.1f} s; a constant of "
        f"{constant:.2f} s and {statistics.median(shares):+.1%} ({shares[0]:+.1%} to {shares[-1]:+.1%}) of the run"
    )


def here(env, settings):
    began = time.perf_counter()
    ledger = agents.run(env, agents.make("sm", env, seed=0, **settings), seed=0)
    return time.perf_counter() - began, ledger


def inside(env, settings, folder):
    from leaderboard.play import play

    (folder / "agent.py").write_text(AGENT.format(settings=settings))
    began = time.perf_counter()
    played = play(env, folder, 0)
    assert played.failure is None
    return time.perf_counter() - began, played.ledger


def plain(ledger):
    return [[getattr(row, name) for name in COLUMNS] for row in ledger]
