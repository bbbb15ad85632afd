"""The trainings of a run with a fixed waiting time, and how large what they train is, known before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from agents.growth import growth as read_growth
from agents.policies import Progress


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        tick: when it is made, 1..B.
        mega_batches: how many it is made on.
        grown: growth steps so far, its own included.
        grows: whether some of them come right before it.
    """

    tick: int
    mega_batches: int
    grown: int = 0
    grows: bool = False


@cache  # whoever shows how far a run is asks at every tick
def trainings(ticks: int, wait: int, *, replay: bool = False, growth: str = "never") -> tuple[Training, ...]:
    """The trainings at every ``wait``-th of so many ticks and at the last one.

    Growth that hangs on a loss (``stall``) is not known beforehand, and none is told.

    Raises:
        ValueError: there is no such schedule of growth.

    >>> [(one.tick, one.mega_batches, one.grown) for one in trainings(5, 2, growth="every")]
    [(2, 2, 0), (4, 2, 1), (5, 1, 2)]
    """
    due = read_growth(growth)
    made: list[Training] = []
    grown = before = 0
    for tick in range(1, ticks + 1):
        if tick % wait and tick != ticks:
            continue
        steps = due(Progress(tick, ticks, pending=tick - before, stages=len(made)))
        grown += steps
        made.append(Training(tick, tick if replay else tick - before, grown, steps > 0))
        before = tick
    return tuple(made)


def experts_after(agent: Mapping[str, Any], backbone: str, grown: int) -> int:
    """Experts in each layer of what an agent trains after so many growth steps, of text in each Switch layer.

    Args:
        agent: its configuration, as the record of a run has it.
        backbone: what its method trains.
        grown: growth steps so far.
    """
    id = agent["id"]
    if id == "gmoe":
        by = agent["grow_by"]
        steps = [by] if isinstance(by, int) else list(by)
        first = agent["width"] if backbone == "switch" else agent["init_experts"]
        return int(first + sum(steps[min(step, len(steps) - 1)] for step in range(grown)))
    if backbone == "switch":
        return int(agent["width"])
    return int({"moe": agent.get("init_experts"), "gens-moe": agent.get("experts")}.get(id) or 1)


def times_the_size(agent: Mapping[str, Any], backbone: str, grown: int) -> float:
    """How many times the parameters of the first training an agent trains after so many growth steps, about.

    A growing ensemble trains new members alone, which do not grow. The arguments are those of ``experts_after``.
    """
    if agent["id"] == "ff":
        return float(1 + agent["growth_rate"] * grown)
    return experts_after(agent, backbone, grown) / experts_after(agent, backbone, 0)
