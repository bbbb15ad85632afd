"""The decisions of a policy as a Gymnasium action space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.masks import mask_state, mask_table
from agents.policies.progress import Decision
from agents.policies.validation import check_types

KINDS = ("train", "multi", "flat")

# (train, replay, grow) of each action of the kind `flat`: the combinations that differ in effect.
FLAT = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]])

# The decisions (replay, grow) of a training that each of the six values of the kind `multi` stands for.
_MULTI = [(False, 0), (False, 0), (False, 0), (True, 0), (False, 0), (False, 1)]


@dataclass(frozen=True)
class Actions:
    """An action space, and its mapping to decisions.

    Attributes:
        kind: ``train`` is Discrete(2): wait or train. ``multi`` is MultiDiscrete([2, 2, 2]): train, replay, grow.
            ``flat`` is Discrete(5): wait; train; train with replay; grow and train; grow and train with replay.
        grows: whether the learner can grow. If it cannot, no action grows it.
        replay: with ``train``, whether each stage replays.
        grow: with ``train``, whether the learner grows before each stage except the first.
    """

    kind: str = "train"
    grows: bool = False
    replay: bool = False
    grow: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"actions={self.kind!r}: must be one of {', '.join(KINDS)}; use actions='train'")
        check_types({"replay": self.replay, "grow": self.grow}, {"replay": bool, "grow": bool})
        if self.kind != "train" and (self.replay or self.grow):
            raise ValueError(
                f"replay={self.replay}, grow={self.grow} with actions={self.kind!r}: each action decides whether to "
                "replay and grow; leave replay and grow out, or use actions='train'"
            )
        if self.grow and not self.grows:
            raise ValueError("grow=True: the learner cannot grow; leave grow out, or use a learner that grows")

    def space(self) -> spaces.Discrete | spaces.MultiDiscrete:
        """Return the action space, a new object at each call."""
        if self.kind == "multi":
            return spaces.MultiDiscrete([2, 2, 2])
        return spaces.Discrete(2 if self.kind == "train" else len(FLAT))

    def flags(self, actions: Any) -> NDArray[np.bool_]:
        """Return (train, replay, grow) as bool (3,) or (n, 3).

        Args:
            actions: () or (n,); for ``multi`` (3,) or (n, 3).
        """
        chosen = np.asarray(actions, np.int64)  # NumPy takes a bool for a mask, not for the number of an action
        if self.kind == "train":
            flags = np.stack([chosen, chosen & self.replay, chosen & self.grow], -1).astype(bool)
        elif self.kind == "flat":
            flags = FLAT[chosen].astype(bool)
        else:
            flags = chosen.astype(bool)
            flags = flags & flags[..., :1]
        if not self.grows:
            flags[..., 2] = False
        return flags

    def decision(self, action: Any) -> Decision:
        """Return the decision of one action."""
        train, replay, grow = self.flags(action).tolist()
        return Decision(train, replay, grow)

    def masks(self, *, tick: Any, pending: Any, stages: Any) -> NDArray[np.bool_]:
        """Return which actions are allowed, see `agents.policies.masks`.

        The mask has the form of sb3-contrib's MaskablePPO. For Discrete(k) it is bool (k,). For ``multi`` it is bool
        (6,): the values 0 and 1 of train, of replay and of grow. It cannot say that replay and growth are void while
        the agent waits. For n runs it is (n, k) or (n, 6).

        Args:
            tick: tick of the run, 1..B, or integers (n,) of n runs.
            pending: mega-batches gathered since the last stage, including the new one; as `tick`.
            stages: number of stages so far; as `tick`.
        """
        if self.kind == "train":
            decisions = [Decision(False), Decision(True)]  # no action decides about replay and growth
        elif self.kind == "flat":
            decisions = [Decision(*map(bool, flags)) for flags in FLAT]
        else:
            decisions = [Decision(True, *flags) for flags in _MULTI]
        masks: NDArray[np.bool_] = mask_table(decisions, grows=self.grows)[mask_state(tick, pending, stages)]
        return masks
