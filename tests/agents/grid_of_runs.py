"""Synthetic runs of three methods on a grid of settings, and on text."""

from __future__ import annotations

from agents.analysis.seed_groups import SeedGroup, find_seed_groups
from agents.runs.load import FinishedRun

from .fake_runs import fake_run

METHODS = ("sm", "ens", "gmoe")
GRID = [
    fake_run(agent, width, wait, seed, replay=replay)
    for agent in METHODS
    for width in (4, 16)
    for wait in (1, 5)
    for replay in (False, True)
    for seed in (0, 1, 2)
]
NO_REPLAY = [run for run in GRID if not run.config["agent"]["policy"]["replay"]]
TEXT = [
    fake_run(agent, 4, wait, seed, text=True, env="Text-ALMA-v0", ticks=4)
    for agent in METHODS
    for wait in (1, 2)
    for seed in (0, 1)
]


def group(runs: list[FinishedRun], agent: str, width: int, wait: int, replay: bool = False) -> SeedGroup:
    (found,) = (
        one
        for one in find_seed_groups(runs)[0]
        if (one.agent, one.width, one.wait, one.replay) == (agent, width, wait, replay)
    )
    return found
