"""The ten decisions of the second version of the decision environments, as a Gymnasium action space with a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.masks import mask_state, mask_table
from agents.policies.progress import Decision


@dataclass(frozen=True)
class Choice:
    """A kind of decision.

    Attributes:
        name: of the choice.
        train: run a stage.
        replay: ``none``, ``last`` (the newest tenth of the stream) or ``all``: the earlier mega-batches it trains on.
        restart: train from a new random initialisation.
        grow: grow before training.
    """

    name: str
    train: bool = True
    replay: str = "none"
    restart: bool = False
    grow: bool = False


CHOICES = (
    Choice("wait", train=False),
    Choice("train"),
    Choice("train, replay last", replay="last"),
    Choice("train, replay all", replay="all"),
    Choice("restart", restart=True),
    Choice("restart, replay last", replay="last", restart=True),
    Choice("restart, replay all", replay="all", restart=True),
    Choice("grow", grow=True),
    Choice("grow, replay last", replay="last", grow=True),
    Choice("grow, replay all", replay="all", grow=True),
)
TRAIN, RESTART, GROW = (np.array([getattr(one, name) for one in CHOICES]) for name in ("train", "restart", "grow"))
REPLAY = np.array([one.replay for one in CHOICES])
_WINDOW_SHARE = 10  # "last" is the newest tenth of the stream


def choice_space() -> spaces.Discrete:
    """Return the action space, Discrete(10); a new object at each call."""
    return spaces.Discrete(len(CHOICES))


def window(ticks: int) -> int:
    """Return the number of mega-batches that the choices with ``replay last`` repeat, in a stream of this length."""
    return max(ticks // _WINDOW_SHARE, 1)


def decision_of(choice: Any, ticks: int, *, grows: bool = True) -> Decision:
    """Return the decision of a choice, 0..9, in a stream of ``ticks`` mega-batches.

    A learner that cannot grow (``grows=False``) trains without growth.

    >>> decision_of(5, ticks=500)
    Decision(train=True, replay=True, grow=0, window=50, restart=True)
    """
    one = CHOICES[int(choice)]
    last = window(ticks) if one.replay == "last" else None
    return Decision(one.train, one.replay != "none", one.grow and grows, last, one.restart)


def megabatches_with(replay: Any, tick: Any, pending: Any, ticks: int) -> NDArray[np.int64]:
    """Return the number of mega-batches of trainings, int64 (n,).

    Args:
        replay: ``none``, ``last`` or ``all``, as in `Choice`, for each training, (n,).
        tick: tick of the training, () or (n,).
        pending: mega-batches gathered since the training before, () or (n,).
        ticks: length of the stream, B.
    """
    replay = np.asarray(replay)
    recent = np.minimum(tick, pending + np.where(replay == "last", window(ticks), 0))
    return np.asarray(np.where(replay == "all", tick, recent))


def allowed_choices(tick: Any, pending: Any, stages: Any, *, grows: bool) -> NDArray[np.bool_]:
    """Return which choices are not void, bool (10,) or (n, 10); see `agents.policies.masks`.

    A void choice does the same as an allowed one. If the last training was in the first tenth of the stream, replay of
    the newest tenth and of everything are the same, and both are allowed.

    Args:
        tick: current tick, or those of n episodes, (n,).
        pending: mega-batches gathered since the last training, () or (n,).
        stages: trainings so far, () or (n,).
        grows: whether the learner can grow.
    """
    masks: NDArray[np.bool_] = MASKS[grows].take(mask_state(tick, pending, stages), 0)  # a copy: users keep it
    return masks


_DECISIONS = [decision_of(choice, ticks=1) for choice in range(len(CHOICES))]
MASKS = {grows: mask_table(_DECISIONS, grows=grows) for grows in (False, True)}
