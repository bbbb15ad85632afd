"""How a learner trains: the settings of its stages, its random numbers, its device and its engine.

Each role of each member at each stage has its own random numbers (`agents.training.seeding`). Member 0 of an ensemble
has those of the single model, so it is the single model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import nn

from agents.networks.mlp_vgg import Predictor
from agents.training.seeding import Role, generator, stage_generators
from agents.training.settings import OnEpoch, StageSettings
from agents.training.stage import Engine, Examples, StageReport, plain_engine, train_stage


@dataclass(frozen=True)
class MembersReport:
    """The report of each member of an ensemble for one stage."""

    members: tuple[StageReport, ...]

    @property
    def best_loss(self) -> float:
        """Mean over the members of the validation loss at their best epochs."""
        return mean(report.best_loss for report in self.members)

    @property
    def best_error(self) -> float:
        """Mean over the members of the validation error at their best epochs."""
        return mean(report.best_error for report in self.members)


@dataclass(frozen=True)
class Trainer:
    """What all learners of the paper train with.

    Attributes:
        settings: settings of a stage.
        seed: run seed, at least 0. All random numbers are derived from it.
        device: where to train.
        engine: how to compute a stage, see `agents.training.engines.engine_named`; all engines give the same result,
            to rounding. The default trains in this process alone, also under ``torchrun``.
        on_epoch: called with the number of epochs done after every epoch, for progress displays; on a GPU, the host can
            be an epoch ahead.
    """

    settings: StageSettings
    seed: int = 0
    device: torch.device | str = "cpu"
    engine: Engine = plain_engine
    on_epoch: OnEpoch | None = None

    def generator(self, role: Role, *, stage: int = 1, member: int = 0) -> torch.Generator:
        """Return the generator of one role of one member at one stage, on the CPU."""
        return generator(self.seed, role, member=member, stage=stage)

    def train(self, predictor: Predictor, train: Examples, valid: Examples, stage: int) -> StageReport:
        """Train `predictor.body` in place on T = `train` and keep its best epoch on V = `valid`."""
        (own,) = stage_generators(self.seed, stage)
        return train_stage(predictor, train, valid, self.settings, own, engine=self.engine, on_epoch=self.on_epoch)

    def train_members(
        self, normalize: nn.Module, bodies: Sequence[nn.Module], train: Examples, valid: Examples, stage: int
    ) -> MembersReport:
        """Train each network in place on the same T and V and keep its own best epoch."""
        own, on_epoch = stage_generators(self.seed, stage, len(bodies)), _every(len(bodies), self.on_epoch)
        reports = (
            train_stage(
                Predictor(normalize, body), train, valid, self.settings, each, engine=self.engine, on_epoch=on_epoch
            )
            for body, each in zip(bodies, own, strict=True)
        )
        return MembersReport(tuple(reports))


def _every(times: int, on_epoch: OnEpoch | None) -> OnEpoch | None:
    """Return a callback that calls `on_epoch` at every `times`-th call, with the number of epochs of the ensemble."""
    if on_epoch is None:
        return None
    calls = 0

    def count(epoch: int) -> None:
        nonlocal calls
        calls += 1
        if calls % times == 0:
            on_epoch(calls // times)

    return count
