"""Ens, the ensemble: N single models on the same data, their probabilities averaged (ALMA paper, section 4).

stage k:  for each member j:  θ_j ← its weights of stage k − 1, or a random initialisation if k = 1 or `from_scratch`
                              train as the single model on T, with its own order;  θ_j = its best epoch on V
predict:  argmax (1/N) Σ_j softmax f(x; θ_j)
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from agents.members import MembersReport, together_pays, train_members
from agents.networks import Predictor
from agents.seeding import generator
from agents.single_model import Build
from agents.stage import Engine, Examples, OnEpoch, StageSettings
from alma_env import Ensemble


class Ens:
    """A learner of independent members; it cannot grow.

    Args:
        build: makes one member's untrained predictor from a generator of its initial weights.
        settings: recipe of a stage.
        seed: run seed; member 0 draws from it as the single model does.
        members: N.
        from_scratch: start every stage from new random initialisations; only meaningful with replay.
        together: train the members at once or one after another; None: what is faster. The numbers agree to rounding.
        engine: how a stage is computed.
        device: where to train.
        on_epoch: told after every epoch, for progress displays.

    Raises:
        ValueError: there is no member.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        members: int = 5,
        from_scratch: bool = False,
        together: bool | None = None,
        engine: Engine = "plain",
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
    ) -> None:
        require_members(members)
        self.settings = settings
        self.seed = seed
        self.members = members
        self.from_scratch = from_scratch
        self.engine = engine
        self.on_epoch = on_epoch
        self.stage = 0
        self._build = build
        self._device = torch.device(device)
        untrained = self._initialise(stage=1)
        bodies = [predictor.body for predictor in untrained]
        self.together = together_pays(bodies, settings) if together is None else together
        self.predictor = Ensemble(bodies, untrained[0].normalize).eval()

    def _initialise(self, stage: int) -> list[Predictor]:
        return initialise_members(self._build, self.seed, self.members, stage, self._device)

    def train(self, train: Examples, valid: Examples) -> MembersReport:
        """Fine-tune every member on T with selection on V. The predictor handed out before stays as it was."""
        predictor = self.begin_stage()
        report = train_members(
            predictor.prepare,
            list(predictor.members),
            train,
            valid,
            self.settings,
            seed=self.seed,
            stage=self.stage + 1,
            together=self.together,
            engine=self.engine,
            on_epoch=self.on_epoch,
        )
        self.end_stage(predictor)
        return report

    def begin_stage(self) -> Ensemble:
        """What the next stage trains: a copy of the ensemble, or one whose members were initialised anew."""
        if self.from_scratch and self.stage > 0:
            bodies: list[nn.Module] = [predictor.body for predictor in self._initialise(self.stage + 1)]
        else:
            bodies = copy.deepcopy(list(self.predictor.members))
        return Ensemble(bodies, self.predictor.prepare)

    def end_stage(self, predictor: Ensemble) -> None:
        """Take over what a stage has trained."""
        self.stage += 1
        self.predictor = predictor.eval()

    def grow(self, train: Examples, valid: Examples) -> None:
        """Refused: an ensemble of fixed size."""
        raise ValueError(
            "grow with agent 'ens': an ensemble has a fixed number of members; use growth='never', or the agent 'gens'"
        )

    def state_dict(self) -> dict[str, Any]:
        """Weights and buffers of all members, and the number of stages."""
        return {"stage": self.stage, "predictor": self.predictor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``."""
        self.stage = state["stage"]
        self.predictor = copy.deepcopy(self.predictor)
        self.predictor.load_state_dict(state["predictor"])


def initialise_members(build: Build, seed: int, members: int, stage: int, device: torch.device) -> list[Predictor]:
    """Untrained predictors; the first is the single model's of that stage."""
    generators: Sequence[torch.Generator] = [
        generator(seed, "init", member=member, stage=stage) for member in range(members)
    ]
    return [build(weights).to(device).eval() for weights in generators]


def require_members(members: int) -> None:
    """Raises ValueError unless there is at least one."""
    if members < 1:
        raise ValueError(f"members={members}: an ensemble needs at least 1 member; the paper has 5")
