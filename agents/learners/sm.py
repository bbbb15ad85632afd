"""SM, the single model: one network, fine-tuned at every stage (ALMA paper, section 4; Algorithm 1).

stage k:  θ ← θ_{k−1}, or a random initialisation if k = 1 or ``from_scratch``
          minimise the mean cross-entropy over T for E epochs;  θ_k = the best epoch on V
predict:  argmax f(x; θ_k)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from agents.networks import Predictor
from agents.seeding import generator, stage_generators
from agents.stage import Engine, Examples, OnEpoch, StageReport, StageSettings, train_stage

Build = Callable[[torch.Generator], Predictor]


class SingleModel:
    """A learner that fine-tunes one network; it cannot grow.

    Args:
        build: makes the untrained predictor from a generator of its initial weights.
        settings: recipe of a stage.
        seed: run seed, from which initialisation, data order and augmentation are derived.
        from_scratch: start every stage from a new random initialisation; only meaningful with replay.
        engine: how a stage is computed; both give the same result to floating-point tolerance.
        device: where to train.
        on_epoch: told after every epoch, for progress displays.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        from_scratch: bool = False,
        engine: Engine = "plain",
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
        """Fine-tune on T with selection on V, and keep the best epoch. The predictor before stays as it was."""
        predictor = self.begin_stage()
        report = train_stage(
            predictor,
            train,
            valid,
            self.settings,
            engine=self.engine,
            on_epoch=self.on_epoch,
            **stage_generators(self.seed, self.stage + 1),
        )
        self.end_stage(predictor)
        return report

    def begin_stage(self) -> Predictor:
        """What the next stage trains: a copy of the predictor, or one that was initialised anew."""
        anew = self.from_scratch and self.stage > 0
        return self._initialise(self.stage + 1) if anew else copy.deepcopy(self.predictor)

    def end_stage(self, predictor: Predictor) -> None:
        """Take over what a stage has trained."""
        self.stage += 1
        self.predictor = predictor.eval()

    def grow(self, train: Examples, valid: Examples) -> None:
        """Refused: a single model has a fixed architecture."""
        raise ValueError(
            "grow=True with agent 'sm': a single model cannot grow; use a policy that does not grow, or a growing agent"
        )

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers and the number of stages; optimizers start afresh at each stage."""
        return {"stage": self.stage, "predictor": self.predictor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``."""
        self.stage = state["stage"]
        self.predictor = copy.deepcopy(self.predictor)
        self.predictor.load_state_dict(state["predictor"])
