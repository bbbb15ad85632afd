"""What the agents of an arena hand in, checked: actions and bids. Errors name the agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from torch import nn

from alma_env.arena import auction
from alma_env.arena.participants import require_known
from alma_env.env import AlmaEnv
from alma_env.errors import AlmaError, in_context


def spaces_of(own: AlmaEnv, shared_flops_budget: int | None) -> tuple[Space[Any], Space[Any]]:
    """Return the observation space and the action space of an agent, with grants and bids of a shared budget."""
    if shared_flops_budget is None:
        return own.observation_space, own.action_space
    assert isinstance(own.observation_space, spaces.Dict)
    flops = [spaces.Box(0.0, float(shared_flops_budget), (), np.float64) for _ in range(3)]
    return (
        spaces.Dict({**own.observation_space.spaces, "grant": flops[0], "pool": flops[1]}),
        spaces.Dict({"predictor": own.action_space, "bid": flops[2]}),
    )


def by_agent(name: str, values: Any, agents: list[str]) -> dict[str, Any]:
    """Return the values of an option of ``reset`` by agent; empty for None.

    Raises:
        TypeError: the values are not a dictionary.
        ValueError: an agent is unknown.
    """
    if values is not None and not isinstance(values, Mapping):
        example = f"{{{agents[0]!r}: ...}}"
        raise TypeError(f"{name}={values!r}: must be a dictionary by agent, for example {example}")
    return require_known(name, values or {}, agents)


def read_bids(bids: Mapping[str, Any], shared_flops_budget: int | None) -> dict[str, int]:
    """Return bids in whole FLOPs.

    Raises:
        ValueError: there is no shared budget, or a bid breaks its rule.
        TypeError: a bid is not a number.
    """
    if shared_flops_budget is not None:
        return {agent: _read_bid(agent, bid, shared_flops_budget) for agent, bid in bids.items()}
    if bids:
        raise ValueError(f"bids {bids}: only with a shared budget; pass shared_flops_budget, or leave the bids out")
    return {}


def read_actions(
    actions: Mapping[str, Any], agents: list[str], possible_agents: list[str], shared_flops_budget: int | None
) -> dict[str, tuple[nn.Module | None, int]]:
    """Return the predictor and the bid of each remaining agent; the bid is 0 without a shared budget.

    Args:
        actions: as for ``Arena.step``.
        agents: the agents that must answer.
        possible_agents: all agents of the arena.
        shared_flops_budget: the shared budget, or None.

    Raises:
        ValueError: an action is missing, or of an agent that must not answer; or a bid breaks its rule.
        TypeError: an action has no predictor or bid.
    """
    for agent in agents:
        if agent not in actions:
            raise ValueError(
                f"no action of agent {agent!r}: every agent in arena.agents must answer at every tick; pass None "
                "to keep its deployed predictor"
            )
    for agent in actions:
        if agent not in agents:
            state = "has left the arena" if agent in possible_agents else "is unknown"
            raise ValueError(f"action of agent {agent!r}, which {state}: pass those of arena.agents, {agents}")
    return {agent: _read_action(agent, actions[agent], shared_flops_budget) for agent in agents}


def _read_action(agent: str, action: Any, shared_flops_budget: int | None) -> tuple[nn.Module | None, int]:
    if shared_flops_budget is None:
        return action, 0
    if not isinstance(action, Mapping) or set(action) != {"predictor", "bid"}:
        raise TypeError(
            f"agent {agent!r}: action {action!r} with a shared budget: must be "
            "{'predictor': a module or None, 'bid': FLOPs for the next tick, or 0}"
        )
    return action["predictor"], _read_bid(agent, action["bid"], shared_flops_budget)


def _read_bid(agent: str, bid: Any, shared_flops_budget: int) -> int:
    with named(agent):
        return auction.read_bid(bid, shared_flops_budget)


@contextmanager
def named(agent: str) -> Iterator[None]:
    """Add the name of the agent to errors."""
    try:
        yield
    except (AlmaError, TypeError, ValueError, RuntimeError) as error:
        where = f"agent {agent!r}, whose meter is arena.meters[{agent!r}]"
        if isinstance(error, AlmaError):
            raise in_context(error, where) from error
        kind = next(kind for kind in (TypeError, ValueError, RuntimeError) if isinstance(error, kind))
        raise kind(f"{where}: {error}") from error
