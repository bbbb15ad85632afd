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

from agents.ens import initialise_members, require_members
from agents.members import MembersReport, together_pays, train_members
from agents.single_model import Build
from agents.stage import Engine, Examples, OnEpoch, StageSettings
from alma_env import Ensemble
from alma_env.ensemble import Space


class GEns:
    """A learner that adds members. Where the policy does not grow, the newest members are trained further.

    Args:
        build: makes one member's untrained predictor from a generator of its initial weights.
        settings: recipe of a stage.
        seed: run seed; the first member of stage k draws as a single model from scratch does at stage k.
        members: n, how many are added per growth.
        warm_start: new members are copies of the newest ones instead of new networks.
        space: average probabilities (``prob``), as in the paper, or logits (``logit``), as in the code that its authors
            released.
        together: train the new members at once or one after another; None: what is faster.
        engine: how a stage is computed.
        device: where to train.
        on_epoch: told after every epoch, for progress displays.

    Raises:
        ValueError: no member is added, or there is no such space.
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
        engine: Engine = "plain",
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
        self.newest = members  # how many members the next stage trains
        self._grown = False  # since the last stage
        self._build = build
        self._device = torch.device(device)
        untrained = initialise_members(build, seed, members, 1, self._device)
        bodies = [predictor.body for predictor in untrained]
        self._normalize = untrained[0].normalize
        self.together = together_pays(bodies, settings) if together is None else together
        self.predictor = self._ensemble(bodies)

    def _ensemble(self, bodies: list[nn.Module]) -> Ensemble:
        ensemble = Ensemble(bodies, self._normalize, self.space)
        # As its members are; eval() would walk through hundreds of them at every tick.
        ensemble.training = ensemble.members.training = False
        return ensemble

    def train(self, train: Examples, valid: Examples) -> MembersReport:
        """Train the newest members on T with selection on V; the others are shared with the predictor before."""
        stage = self.stage + 1
        bodies = list(self.predictor.members)
        newest = copy.deepcopy(bodies[-self.newest :])
        report = train_members(
            self._normalize,
            newest,
            train,
            valid,
            self.settings,
            seed=self.seed,
            stage=stage,
            together=self.together,
            engine=self.engine,
            on_epoch=self.on_epoch,
        )
        self.stage, self._grown = stage, False
        self.predictor = self._ensemble([*bodies[: -self.newest], *newest])
        return report

    def grow(self, train: Examples, valid: Examples) -> None:
        """Add untrained members, which the next stage trains."""
        bodies = list(self.predictor.members)
        if self.warm_start:
            new = copy.deepcopy(bodies[-self.members :])
        else:
            before = self.newest if self._grown else 0  # drawn for this stage already
            drawn = initialise_members(self._build, self.seed, before + self.members, self.stage + 1, self._device)
            new = [predictor.body for predictor in drawn[before:]]
        self.newest = (self.newest if self._grown else 0) + len(new)
        self._grown = True
        self.predictor = self._ensemble([*bodies, *new])

    def state_dict(self) -> dict[str, Any]:
        """Weights and buffers of all members, the number of stages, and which members are trained next."""
        return {
            "stage": self.stage,
            "newest": self.newest,
            "grown": self._grown,
            "members": [member.state_dict() for member in self.predictor.members],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``."""
        self.stage, self.newest, self._grown = state["stage"], state["newest"], state["grown"]
        bodies: list[nn.Module] = []
        for weights in state["members"]:
            body = self._build(torch.Generator()).to(self._device).eval().body
            body.load_state_dict(weights)
            bodies.append(body)
        self.predictor = self._ensemble(bodies)
