"""SM, the single model: one network, fine-tuned at every stage (ALMA paper, section 4; Algorithm 1).

stage k:  θ ← θ_{k−1}, or a random initialisation if k = 1 or ``from_scratch``
          minimise the mean cross-entropy over T for E epochs;  θ_k = the best epoch on V
predict:  argmax f(x; θ_k)
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from agents.networks.mlp_vgg import Build, Predictor
from agents.training.engines import ENGINES
from agents.training.seeding import generator, stage_generators
from agents.training.settings import EngineName, OnEpoch, StageSettings
from agents.training.stage import Examples, StageReport, train_stage


class SingleModel:
    """A learner that fine-tunes one network; it cannot grow.

    Args:
        build: creates the untrained predictor from a generator of its initial weights.
        settings: settings of a stage.
        seed: run seed, from which initialisation, data order and augmentation are derived.
        from_scratch: start every stage from a new random initialisation; only meaningful with replay.
        engine: how to compute a stage. All engines give the same result, to rounding.
        device: where to train.
        on_epoch: called after every epoch, for progress displays.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        from_scratch: bool = False,
        engine: EngineName = "plain",
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.from_scratch = from_scratch
        self.engine = engine
        self.on_epoch = on_epoch
        self.stage = 0
        self._build = build
        self._device = torch.device(device)
        self.predictor = self._initialise(stage=1)

    def _initialise(self, stage: int) -> Predictor:
        return self._build(generator(self.seed, "init", stage=stage)).to(self._device).eval()

    def train(self, train: Examples, valid: Examples) -> StageReport:
        """Fine-tune on T and keep the best epoch on V. The deployed predictor does not change."""
        predictor = self.begin_stage()
        (report,) = train_stage(
            predictor,
            train,
            valid,
            self.settings,
            stage_generators(self.seed, self.stage + 1),
            engine=ENGINES[self.engine],
            on_epoch=self.on_epoch,
        )
        self.end_stage(predictor)
        return report

    def begin_stage(self) -> Predictor:
        """Return what the next stage trains: a copy of the predictor, or a newly initialised one."""
        initialise = self.from_scratch and self.stage > 0
        return self._initialise(self.stage + 1) if initialise else copy.deepcopy(self.predictor)

    def end_stage(self, predictor: Predictor) -> None:
        """Make a trained predictor the current one."""
        self.stage += 1
        self.predictor = predictor.eval()

    def grow(self, train: Examples, valid: Examples) -> None:
        """Raise ValueError: a single model has a fixed architecture."""
        raise ValueError("grow with agent 'sm': a single model cannot grow; use growth='never', or an agent that grows")

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers and the number of stages. Each stage has a new optimizer, so it is not stored."""
        return {"stage": self.stage, "predictor": self.predictor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.stage = state["stage"]
        self.predictor = copy.deepcopy(self.predictor)
        self.predictor.load_state_dict(state["predictor"])
