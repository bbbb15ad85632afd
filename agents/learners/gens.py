"""gEns, the growing ensemble: a new single model per stage, the older ones frozen (ALMA paper, section 4).

stage k:  members 1 .. k − 1 are frozen
          member k ← a new network, or a copy of member k − 1 if `warm_start`;  train it as the single model on T and V
predict:  argmax (1/k) Σ_{j ≤ k} softmax f(x; θ_j)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from agents.learners.ens import initialise_members
from agents.learners.network_learner import NetworkLearner
from agents.training.stage import Examples
from agents.training.trainer import MembersReport
from alma_env import Ensemble
from alma_env.scoring.ensemble import Space


@dataclass(eq=False, kw_only=True)
class GEns(NetworkLearner[Ensemble]):
    """A learner that adds members. Without a growth step, a stage trains the newest members further.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        trainer: settings, random numbers, device and engine; the first new member of stage k has the random numbers
            that a single model from scratch has at stage k.
        members: n, members added per growth step, at least 1.
        warm_start: initialise new members with copies of the newest ones instead of random weights.
        space: average probabilities (``prob``, the paper) or logits (``logit``, the authors' released code).
    """

    members: int = 1
    warm_start: bool = False
    space: Space = "prob"
    from_scratch: bool = field(default=False, init=False)  # only new members are untrained

    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest = self.members  # number of members that the next stage trains
        self._grown = False  # whether there was a growth step since the last stage

    def initialise(self, stage: int) -> Ensemble:
        """Return an ensemble of untrained members."""
        members = initialise_members(self.build, self.trainer, self.members, stage)
        return self._ensemble([member.body for member in members], members[0].normalize)

    def _ensemble(self, bodies: list[nn.Module], normalize: nn.Module) -> Ensemble:
        ensemble = Ensemble(bodies, normalize, self.space)
        # The members are in eval mode; eval() would visit hundreds of them at every tick.
        ensemble.training = ensemble.members.training = False
        return ensemble

    def train(self, train: Examples, valid: Examples) -> MembersReport:
        """Train copies of the newest members, or after `restart` untrained ones, and keep their own best epochs.

        Older members are shared, not copied.
        """
        bodies, normalize = list(self.predictor.members), self.predictor.prepare
        newest = self._untrained(self.newest) if self.restarts else copy.deepcopy(bodies[-self.newest :])
        report = self.trainer.train_members(normalize, newest, train, valid, self.stage + 1)
        self.predictor = self._ensemble([*bodies[: -self.newest], *newest], normalize)
        self.stage, self._grown, self.restarts = self.stage + 1, False, False
        return report

    def grow(self, train: Examples, valid: Examples) -> None:
        """Add members, which the next stage trains."""
        bodies = list(self.predictor.members)
        before = self.newest if self._grown else 0  # already initialised for this stage
        if self.warm_start:
            new = copy.deepcopy(bodies[-self.members :])
        else:
            new = self._untrained(before + self.members)[before:]
        self.newest, self._grown = before + self.members, True
        self.predictor = self._ensemble([*bodies, *new], self.predictor.prepare)

    def _untrained(self, members: int) -> list[nn.Module]:
        """Return untrained members for the next stage."""
        return [one.body for one in initialise_members(self.build, self.trainer, members, self.stage + 1)]

    def state_dict(self) -> dict[str, Any]:
        """Return weights and buffers of all members, the number of stages, and which members train next."""
        members = [member.state_dict() for member in self.predictor.members]
        return {"stage": self.stage, "newest": self.newest, "grown": self._grown, "members": members}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.stage, self.newest, self._grown = state["stage"], state["newest"], state["grown"]
        members = initialise_members(self.build, self.trainer, len(state["members"]), 1)
        for member, weights in zip(members, state["members"], strict=True):
            member.body.load_state_dict(weights)
        self.predictor = self._ensemble([member.body for member in members], self.predictor.prepare)
