"""Making an arena from the id of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from alma_env.arena.arena import Arena, Observation
from alma_env.arena.participants import Budget
from alma_env.construction import make
from alma_env.errors import AlmaError


def parallel_env(
    id: str,
    agents: Iterable[str] | int = 2,
    *,
    flops_budget: Budget = None,
    parameter_budget: Budget = None,
    shared_flops_budget: float | None = None,
    seats: int = 1,
    render_mode: str | None = None,
    **keywords: Any,
) -> Arena:
    """Make an arena on a stream.

    `Arena` documents ``flops_budget``, ``parameter_budget``, ``shared_flops_budget``, ``seats`` and ``render_mode``.

    Args:
        id: id of the stream, as for ``alma_env.make``.
        agents: names of the agents, or their number: ``agent_0``, ``agent_1``, …
        keywords: other keywords of ``alma_env.make``, such as ``ticks``. The data are loaded once for all agents.

    Raises:
        ValueError: an unknown id, or a value that breaks its rule.
        TypeError: an unknown keyword, or a value of another type.
        DataUnavailableError: the data set is neither on disk nor available for download.
    """
    # `Arena` names the same keywords: a common record would hide their types and defaults from help and editors.
    # A test compares the two lists.
    return Arena(
        make(id, **keywords),
        agents,
        flops_budget=flops_budget,
        parameter_budget=parameter_budget,
        shared_flops_budget=shared_flops_budget,
        seats=seats,
        render_mode=render_mode,
    )


def env(id: str, agents: Iterable[str] | int = 2, **keywords: Any) -> AECEnv[str, Observation, Any]:
    """Make a turn-based arena with PettingZoo's converter; ``env(...).unwrapped`` is the `Arena`.

    The actions of all agents are read in the turn of the last one. If one of them is refused, nothing changes, the
    error names its agent, and all agents act again, the first one first.
    """
    return OrderEnforcingWrapper(_TurnBasedArena(parallel_env(id, agents, **keywords)))


class _TurnBasedArena(parallel_to_aec_wrapper[str, Observation, Any]):
    """The converter, which would give no second turn to an agent whose action is refused."""

    def step(self, action: Any) -> None:
        try:
            super().step(action)
        except (AlmaError, TypeError, ValueError):
            self.agent_selection = self._agent_selector.reset()
            raise
