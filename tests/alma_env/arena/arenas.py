"""Small arenas, predictors for them, and an episode with training."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from alma_env import arena
from alma_env.arena.arena import Arena

from ..predictors import train

TICKS = 5
DIGITS = "Digits-ALMA-v0"
SETTINGS = pytest.mark.parametrize(
    "keywords",
    [{}, {"parameter_budget": {"agent_1": 10}}, {"shared_flops_budget": 1e9, "seats": 2}],
    ids=["plain", "one is truncated", "shared budget"],
)


class Linear(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(10, 64, generator=generator) / 8)

    def forward(self, x):
        return nn.functional.linear(x.flatten(1).float() / 16, self.weight)


def rows(ledger):
    """The rows of a ledger without the seconds."""
    return [dataclasses.replace(row, seconds=0.0) for row in ledger]


def make(agents=("a", "b"), **keywords) -> Arena:
    return arena.parallel_env(DIGITS, agents, ticks=TICKS, **keywords)


def play(env: Arena, models: dict, steps: dict, seed: int = 0) -> None:
    """At each tick, every agent trains its model for the given number of steps; with 0 it waits."""
    observations, _ = env.reset(seed=seed, options={"predictors": models})
    while env.agents:
        for agent in env.agents:
            with env.meters[agent]:
                train(models[agent], observations[agent], steps[agent])
        observations, *_ = env.step({agent: models[agent] for agent in env.agents})


def bidding(**bids):
    return {agent: {"predictor": None, "bid": bid} for agent, bid in bids.items()}
