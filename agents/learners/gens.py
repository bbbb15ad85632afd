"""gEns, the growing ensemble: a new single model per stage, the older ones frozen (ALMA paper, section 4).

stage k:  members 1 .. k − 1 are frozen
          member k ← a new network, or a copy of member k − 1 if `warm_start`;  train it as the single model on T and V
predict:  argmax (1/k) Σ_{j ≤ k} softmax f(x; θ_j)
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from agents.learners.ens import initialise_members, require_members
from agents.networks.mlp_vgg import Build
from agents.training.members import MembersReport, together_pays, train_members
from agents.training.seeding import stage_generators
from agents.training.settings import EngineName, OnEpoch, StageSettings
from agents.training.stage import Examples
from alma_env import Ensemble
from alma_env.scoring.ensemble import Space


class GEns:
    """A learner that adds members. Without a growth step, a stage trains the newest members further.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        settings: settings of a stage.
        seed: run seed; the first new member of stage k has the random numbers that a single model from scratch has at
            stage k.
        members: n, members added per growth step.
        warm_start: initialise new members with copies of the newest ones instead of random weights.
        space: average probabilities (``prob``), as in the paper, or logits (``logit``), as in the authors' released
            code.
        together: train the new members together (True) or one after another (False); None chooses the faster.
        engine: how to compute a stage.
        device: where to train.
        on_epoch: called after every epoch, for progress displays.

    Raises:
        ValueError: a growth step would add no member, or the space does not exist.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        members: int = 1,
        warm_start: bool = False,
        space: Space = "prob",
        together: bool | None = None,
        engine: EngineName = "plain",
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
    ) -> None:
        require_members(members)
        self.settings = settings
        self.seed = seed
        self.members = members
        self.warm_start = warm_start
        self.space: Space = space
        self.engine = engine
        self.on_epoch = on_epoch
        self.stage = 0
        self.newest = members  # number of members that the next stage trains
        self._grown = False  # whether there was a growth step since the last stage
        self._build = build
        self._device = torch.device(device)
        untrained = initialise_members(build, seed, members, 1, self._device)
        bodies = [predictor.body for predictor in untrained]
        self._normalize = untrained[0].normalize
        self.together = together_pays(bodies, settings) if together is None else together
        self.predictor = self._ensemble(bodies)

    def _ensemble(self, bodies: list[nn.Module]) -> Ensemble:
        ensemble = Ensemble(bodies, self._normalize, self.space)
        # The members are in eval mode; eval() would visit hundreds of them at every tick.
        ensemble.training = ensemble.members.training = False
        return ensemble

    def train(self, train: Examples, valid: Examples) -> MembersReport:
        """Train the newest members on T and keep their best epochs on V. Older members are shared, not copied."""
        bodies = list(self.predictor.members)
        newest = copy.deepcopy(bodies[-self.newest :])
        report = train_members(
            self._normalize,
            newest,
            train,
            valid,
            self.settings,
            stage_generators(self.seed, self.stage + 1, len(newest)),
            together=self.together,
            engine=self.engine,
            on_epoch=self.on_epoch,
        )
        self.stage, self._grown = self.stage + 1, False
        self.predictor = self._ensemble([*bodies[: -self.newest], *newest])
        return report

    def grow(self, train: Examples, valid: Examples) -> None:
        """Add members, which the next stage trains."""
        bodies = list(self.predictor.members)
        if self.warm_start:
            new = copy.deepcopy(bodies[-self.members :])
        else:
            before = self.newest if self._grown else 0  # already initialised for this stage
            untrained = initialise_members(self._build, self.seed, before + self.members, self.stage + 1, self._device)
            new = [predictor.body for predictor in untrained[before:]]
        self.newest = (self.newest if self._grown else 0) + len(new)
        self._grown = True
        self.predictor = self._ensemble([*bodies, *new])

    def state_dict(self) -> dict[str, Any]:
        """Return weights and buffers of all members, the number of stages, and which members train next."""
        return {
            "stage": self.stage,
            "newest": self.newest,
            "grown": self._grown,
            "members": [member.state_dict() for member in self.predictor.members],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.stage, self.newest, self._grown = state["stage"], state["newest"], state["grown"]
        bodies: list[nn.Module] = []
        for weights in state["members"]:
            body = self._build(torch.Generator()).to(self._device).eval().body
            body.load_state_dict(weights)
            bodies.append(body)
        self.predictor = self._ensemble(bodies)
