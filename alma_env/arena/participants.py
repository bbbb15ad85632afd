"""The agents of an arena: their names, and values given for each of them by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

Budget = float | Mapping[str, float | None] | None


def agent_names(agents: Iterable[str] | int) -> list[str]:
    """Return the names of the agents, from a list of names or a number of agents.

    >>> agent_names(2)
    ['agent_0', 'agent_1']
    """
    if isinstance(agents, Integral) and not isinstance(agents, bool):
        names = [f"agent_{number}" for number in range(int(agents))]
    elif isinstance(agents, Iterable) and not isinstance(agents, str):
        names = list(agents)
    else:
        raise TypeError(f"agents={agents!r}: must be a list of names or a number of agents, for example agents=2")
    if not names:
        raise ValueError(f"agents={agents!r}: an arena has at least 1 agent")
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"agents={agents!r}: {name!r} must be a non-empty string; use, for example, ['mine', 'yours']"
            )
        if names.count(name) > 1:
            raise ValueError(f"agents={agents!r}: {name!r} occurs twice; give each agent a different name")
    return names


def budgets_by_agent(name: str, budget: Budget, agents: list[str], default: float | None) -> dict[str, Any]:
    """Return the budget of each agent: the default if `budget` is None; none for an agent missing from a mapping."""
    if not isinstance(budget, Mapping):
        return dict.fromkeys(agents, default if budget is None else budget)
    known = require_known(name, budget, agents)
    return {agent: known.get(agent) for agent in agents}


def require_known(name: str, values: Mapping[str, Any], agents: list[str]) -> dict[str, Any]:
    """Return values by agent; raise a ValueError if an agent is unknown."""
    for agent in values:
        if agent not in agents:
            known = ", ".join(map(repr, agents))
            raise ValueError(f"{name} of agent {agent!r}: unknown agent; the agents are {known}")
    return dict(values)
