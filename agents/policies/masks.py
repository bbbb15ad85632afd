"""Which actions are allowed: those that are not void.

An action is *void* if it decides something that cannot happen: growth of a learner that cannot grow, growth or a
restart before the first stage, or replay when no earlier mega-batch exists. Two allowed actions may still do the same:
replay of the k newest mega-batches repeats everything if the last stage was at tick k or before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policies.progress import Decision


def mask_table(decisions: Sequence[Decision], *, grows: bool = True) -> NDArray[np.bool_]:
    """Return the masks of the four states of a run, bool (4, actions): thousands of runs look their masks up here.

    A decision that does not train must decide nothing else.

    Args:
        decisions: the decision of each action.
        grows: whether the learner can grow.
    """
    return np.array(
        [
            [_has_effect(decision, earlier, trained, grows) for decision in decisions]
            for trained in (False, True)
            for earlier in (False, True)
        ]
    )


def mask_state(tick: Any, pending: Any, stages: Any) -> Any:
    """Return the row of a run in `mask_table`, an integer, or the rows of n runs, integers (n,).

    The arguments are those of `agents.policies.actions.Actions.masks`.
    """
    return np.greater(tick, pending) + 2 * np.greater(stages, 0)


def _has_effect(decision: Decision, earlier: bool, trained: bool, grows: bool) -> bool:
    if not decision.train:
        return not (decision.replay or decision.grow or decision.restart)
    return (
        (not decision.replay or earlier)
        and (not decision.grow or (trained and grows))
        and (not decision.restart or trained)
    )
