"""Ens, the ensemble: N single models on the same data, their probabilities averaged (ALMA paper, section 4).

stage k:  for each member j:  θ_j ← its weights of stage k − 1, or a random initialisation if k = 1 or `from_scratch`
                              train as the single model on T, in its own order;  θ_j = its best epoch on V
predict:  argmax (1/N) Σ_j softmax f(x; θ_j)
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from agents.networks.mlp_vgg import Build, Predictor
from agents.training.members import MembersReport, together_pays, train_members
from agents.training.seeding import generator, stage_generators
from agents.training.settings import EngineName, OnEpoch, StageSettings
from agents.training.stage import Examples
from alma_env import Ensemble


class Ens:
    """A learner of independent members; it cannot grow.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        settings: settings of a stage.
        seed: run seed; member 0 has the random numbers of the single model.
        members: N.
        from_scratch: start every stage from new random initialisations; only meaningful with replay.
        together: train the members together (True) or one after another (False); None chooses the faster. The numbers
            are equal to rounding.
        engine: how to compute a stage.
        device: where to train.
        on_epoch: called after every epoch, for progress displays.

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
        engine: EngineName = "plain",
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
        """Fine-tune every member on T and keep its best epoch on V. The deployed predictor does not change."""
        predictor = self.begin_stage()
        report = train_members(
            predictor.prepare,
            list(predictor.members),
            train,
            valid,
            self.settings,
            stage_generators(self.seed, self.stage + 1, self.members),
            together=self.together,
            engine=self.engine,
            on_epoch=self.on_epoch,
        )
        self.end_stage(predictor)
        return report

    def begin_stage(self) -> Ensemble:
        """Return what the next stage trains: a copy of the ensemble, or one of newly initialised members."""
        if self.from_scratch and self.stage > 0:
            bodies: list[nn.Module] = [predictor.body for predictor in self._initialise(self.stage + 1)]
        else:
            bodies = copy.deepcopy(list(self.predictor.members))
        return Ensemble(bodies, self.predictor.prepare)

    def end_stage(self, predictor: Ensemble) -> None:
        """Make a trained ensemble the current one."""
        self.stage += 1
        self.predictor = predictor.eval()

    def grow(self, train: Examples, valid: Examples) -> None:
        """Raise ValueError: an ensemble has a fixed number of members."""
        raise ValueError(
            "grow with agent 'ens': an ensemble has a fixed number of members; use growth='never', or the agent 'gens'"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return weights and buffers of all members, and the number of stages."""
        return {"stage": self.stage, "predictor": self.predictor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.stage = state["stage"]
        self.predictor = copy.deepcopy(self.predictor)
        self.predictor.load_state_dict(state["predictor"])


def initialise_members(build: Build, seed: int, members: int, stage: int, device: torch.device) -> list[Predictor]:
    """Return untrained predictors; the first is the single model's of that stage."""
    generators = [generator(seed, "init", member=member, stage=stage) for member in range(members)]
    return [build(weights).to(device).eval() for weights in generators]


def require_members(members: int) -> None:
    """Raise ValueError if there is no member."""
    if members < 1:
        raise ValueError(f"members={members}: must be at least 1 member; use members=5, as in the paper")
