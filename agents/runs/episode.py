"""An episode: one agent in one environment; runs, decision environments and the leaderboard's sandbox play with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from torch import nn

from agents.training import distributed
from alma_env.env import AlmaEnv, Observation, Step


class Player(Protocol):
    """An agent, such as ``AnytimeAgent``."""

    def observe(self, observation: Observation) -> nn.Module | None:
        """Take in the mega-batch of a tick; return the predictor to deploy, None to keep the last one."""


def play(env: AlmaEnv, agent: Player, observation: Observation) -> Iterator[nn.Module | None]:
    """Play the remaining ticks of an episode; after each tick, yield what ``agent.observe`` returned.

    `observation` is the mega-batch of the first of these ticks, from ``env.reset``, ``env.step`` or
    ``env.observation``.
    """
    while not env.done:
        predictor, (observation, *_) = play_tick(env, partial(agent.observe, observation))
        yield predictor


def play_tick(env: AlmaEnv, act: Callable[[], nn.Module | None]) -> tuple[nn.Module | None, Step]:
    """Play one tick: call `act` with the meter running, and deploy the predictor that `act` returns.

    With several ranks, the work of all ranks is charged. Returns the predictor and the result of ``env.step``.
    """
    with env.meter:
        predictor = act()
    distributed.sum_charges(env.meter)
    return predictor, env.step(predictor)
