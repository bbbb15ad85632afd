"""Which actions are allowed: those whose decision has an effect that no simpler action has.

An action is *void* if it decides something that cannot happen: growth of a learner that cannot grow, growth or a
restart before the first stage, or replay when no earlier mega-batch exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.progress import Decision


def allowed(
    decisions: Sequence[Decision], *, tick: Any, pending: Any, stages: Any, grows: bool = True
) -> NDArray[np.bool_]:
    """Return whether each decision is allowed, bool (actions,) for one run or (n, actions) for n runs.

    A decision that does not train must decide nothing else.

    Args:
        decisions: the decision of each action.
        tick: tick of the run, 1..B, or integers (n,) of n runs.
        pending: mega-batches gathered since the last stage, including the new one; as `tick`.
        stages: number of stages so far; as `tick`.
        grows: whether the learner can grow.
    """
    earlier, trained = np.greater(tick, pending), np.greater(stages, 0)
    columns = []
    for decision in decisions:
        possible = np.ones(np.shape(tick), bool)
        if decision.replay:
            possible = possible & earlier
        if decision.grow:
            possible = possible & trained & grows
        if decision.restart:
            possible = possible & trained
        if not decision.train and (decision.replay or decision.grow or decision.restart):
            possible = np.zeros_like(possible)
        columns.append(possible)
    return np.stack(columns, -1)
