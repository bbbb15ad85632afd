"""UMix, the uniform mixture: N networks trained jointly as one model (ALMA paper, section 4).

answer    g(x) = (1/N) Σ_j f(x; θ_j), the mean (or the sum) of logits
stage k:  minimise CE(g(x), y) over T: one optimizer, one data order, one best epoch on V;  θ_j from stage k − 1
predict:  argmax g(x)
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agents.learners.ens import initialise_members, require_members
from agents.networks.mlp_vgg import Build, Predictor
from agents.networks.stacked import Joint, Reduce, stack
from agents.training.engines import ENGINES
from agents.training.members import together_pays
from agents.training.seeding import stage_generators
from agents.training.settings import EngineName, OnEpoch, StageSettings
from agents.training.stage import Examples, StageReport, train_stage


class UniformMixture(nn.Module):
    """The mean or the sum of the logits of its members: normalised (n, ...) -> (n, classes)."""

    def __init__(self, members: Sequence[nn.Module], reduce: Reduce = "mean") -> None:
        super().__init__()
        if reduce not in ("mean", "sum"):
            raise ValueError(f"reduce={reduce!r}: must be 'mean' (the paper) or 'sum' (the authors' released code)")
        self.members = nn.ModuleList(members)
        self.reduce = reduce

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of normalised inputs (n, ...)."""
        first, *others = self.members
        total: Tensor = first(x)
        for member in others:
            total = total + member(x)
        return total / len(self.members) if self.reduce == "mean" and others else total


class UMix:
    """A learner of one model made of N networks; it cannot grow.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        settings: settings of a stage.
        seed: run seed; member 0 has the initial weights of the single model, and the data order is the single model's.
        members: N.
        reduce: ``mean`` of logits, as in the paper, or ``sum``, as in the authors' released code. For fixed weights
            both give the same predictions. With SGD, the steps of the sum are N times larger.
        from_scratch: start every stage from new random initialisations; only meaningful with replay.
        together: compute the members together (True) or one after another (False); None chooses the faster.
        engine: how to compute a stage. ``compiled`` always computes the members together.
        device: where to train.
        on_epoch: called after every epoch, for progress displays.

    Raises:
        ValueError: there is no member, or the reduction does not exist.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        members: int = 5,
        reduce: Reduce = "mean",
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
        self.reduce: Reduce = reduce
        self.from_scratch = from_scratch
        self.engine = engine
        self.on_epoch = on_epoch
        self.stage = 0
        self._build = build
        self._device = torch.device(device)
        self.predictor = self._initialise(stage=1)
        bodies = list(mixture_of(self.predictor).members)
        self.together = together_pays(bodies, settings) if together is None else together

    def _initialise(self, stage: int) -> Predictor:
        members = initialise_members(self._build, self.seed, self.members, stage, self._device)
        mixture = UniformMixture([member.body for member in members], self.reduce)
        return Predictor(members[0].normalize, mixture).eval()

    def train(self, train: Examples, valid: Examples) -> StageReport:
        """Train the members jointly on T and keep the best epoch on V. The deployed predictor does not change."""
        predictor = self.begin_stage()
        members = list(mixture_of(predictor).members)
        stacked = stack(members) if self.together or self.engine == "compiled" else None
        body = predictor.body if stacked is None else Joint(stacked, self.reduce)
        (report,) = train_stage(
            Predictor(predictor.normalize, body),
            train,
            valid,
            self.settings,
            stage_generators(self.seed, self.stage + 1),
            engine=ENGINES[self.engine],
            on_epoch=self.on_epoch,
        )
        if stacked is not None:
            stacked.copy_to(members)
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
        """Raise ValueError: a uniform mixture has a fixed number of members."""
        raise ValueError(
            "grow with agent 'umix': a uniform mixture has a fixed number of members; use growth='never', or an "
            "agent that grows: gens, gmoe, ff"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return weights and buffers of all members, and the number of stages."""
        return {"stage": self.stage, "predictor": self.predictor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.stage = state["stage"]
        self.predictor = copy.deepcopy(self.predictor)
        self.predictor.load_state_dict(state["predictor"])


def mixture_of(predictor: Predictor) -> UniformMixture:
    """Return the body of a predictor of `UMix`."""
    assert isinstance(predictor.body, UniformMixture)
    return predictor.body
