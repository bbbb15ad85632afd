"""What a policy may do at a tick, as a Gymnasium action space; and the decision that an action stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies import Decision

KINDS = ("train", "multi", "flat")

# (train, replay, grow): what differs in effect, in the order of the flattened space.
FLAT = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]])


@dataclass(frozen=True)
class Actions:
    """How actions are written.

    Attributes:
        kind: ``train``, Discrete(2), to wait or to train; ``multi``, MultiDiscrete([2, 2, 2]), to train, with replay,
            after a growth step; ``flat``, Discrete(5): wait, train, with replay, after growth, replay after growth.
        grows: whether the learner can grow; where it cannot, no action grows it, whatever it says.
        replay: with ``train``, whether each training replays.
        grow: with ``train``, whether the learner grows before each training but the first.
    """

    kind: str = "train"
    grows: bool = False
    replay: bool = False
    grow: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"actions={self.kind!r}: must be one of {', '.join(KINDS)}")
        if self.kind != "train" and (self.replay or self.grow):
            raise ValueError(
                f"replay={self.replay}, grow={self.grow} with actions={self.kind!r}: there the policy decides about "
                "them; leave them out, or use actions='train'"
            )
        if self.grow and not self.grows:
            raise ValueError("grow=True with a learner that cannot grow; leave it out, or take a learner that grows")

    def space(self) -> spaces.Discrete | spaces.MultiDiscrete:
        """A new object at each call."""
        if self.kind == "multi":
            return spaces.MultiDiscrete([2, 2, 2])
        return spaces.Discrete(2 if self.kind == "train" else len(FLAT))

    def flags(self, actions: Any) -> NDArray[np.bool_]:
        """Actions () or (n,), of ``multi`` (3,) or (n, 3) → (train, replay, grow) as bool (3,) or (n, 3)."""
        chosen = np.asarray(actions)
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
        """What one action stands for."""
        train, replay, grow = self.flags(action).tolist()
        return Decision(train, replay, grow)
