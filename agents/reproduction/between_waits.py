"""Two waiting times of one method and width, of which most of the findings on images speak."""

from __future__ import annotations

from typing import Literal

from agents.reproduction.index import Index, Measure, difference
from agents.reproduction.verdicts import Comparison


def between_waits(
    runs: Index,
    agent: str,
    width: int,
    waits: tuple[int, int],
    name: str,
    measure: Measure,
    predicted: Literal["below", "above"] = "below",
) -> Comparison:
    """What the first waiting time has of a measure, less what the second has.

    Args:
        runs: of one stream.
        agent: id of the method.
        width: of its networks.
        waits: the two.
        name: the measure's.
        measure: of a run.
        predicted: on which side of zero the paper has the difference.
    """
    one, other = (runs.pick(agent=agent, width=width, wait=wait) for wait in waits)
    what = f"{agent} {width}: w={waits[0]} − w={waits[1]}"
    return Comparison(what, name, difference(one, other, measure), predicted)
