"""What the learners of the paper share: stages that never change a deployed predictor."""

# No `from __future__ import annotations`: the constructors of the methods inherit these annotations, and strings would
# be evaluated in the modules of the methods, which do not import all these names.

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from torch import nn

from agents.learners.anytime import Report
from agents.networks.mlp_vgg import Build, Predictor
from agents.training.stage import CannotGrowError, Examples
from agents.training.trainer import Trainer
from alma_env.metering.content.storages import tensors_of
from alma_env.metering.uncounted import note_copies, uncounted
from alma_env.scoring.module_copy import copy_module

P = TypeVar("P", bound=nn.Module)  # the type of the predictor


@dataclass(eq=False, kw_only=True)
class NetworkLearner(Generic[P]):
    """A learner that fine-tunes its predictor at every stage, in a copy: a deployed predictor never changes.

    The class of each method documents the arguments.
    """

    cannot_grow: ClassVar[tuple[str, str]]  # the agent and why it cannot grow; what to use instead

    build: Build = field(kw_only=False)
    trainer: Trainer = field(kw_only=False)
    from_scratch: bool = False
    stage: int = field(default=0, init=False)  # stages so far
    predictor: P = field(init=False, repr=False)
    restarts: bool = field(default=False, init=False)  # whether the next stage starts from a random initialisation

    def __post_init__(self) -> None:
        self.predictor = self.initialise(stage=1)

    def initialise(self, stage: int) -> P:
        """Return the untrained predictor of a stage."""
        raise NotImplementedError

    def grow(self, train: Examples, valid: Examples) -> None:
        """Add capacity before a stage, given the data of that stage; here, raise CannotGrowError."""
        agent_and_reason, instead = self.cannot_grow
        raise CannotGrowError(
            f"grow with agent {agent_and_reason}; use grow=0 (a schedule: growth='never'), or {instead}"
        )

    def restart(self) -> None:
        """Let the next stage start from a new random initialisation, as with `from_scratch`."""
        self.restarts = True

    def train(self, train: Examples, valid: Examples) -> Report:
        """Run one stage on a copy of the predictor, and keep its best epoch.

        After `restart`, and with `from_scratch`, the predictor is an untrained one.
        """
        initialise = (self.from_scratch or self.restarts) and self.stage > 0
        predictor = self.initialise(self.stage + 1) if initialise else self._copy()
        report = self.optimise(predictor, train, valid)
        self.stage, self.predictor, self.restarts = self.stage + 1, predictor.eval(), False
        return report

    def _copy(self) -> P:
        with uncounted():  # a copy computes nothing
            predictor = copy_module(self.predictor)
        note_copies(tensors_of(self.predictor), tensors_of(predictor))
        return predictor

    def optimise(self, predictor: P, train: Examples, valid: Examples) -> Report:
        """Train a predictor in place, as one network."""
        assert isinstance(predictor, Predictor)
        return self.trainer.train(predictor, train, valid, self.stage + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers and the number of stages. Each stage has a new optimizer, so it is not stored."""
        return {"stage": self.stage, "predictor": self.predictor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        predictor = copy_module(self.predictor)
        predictor.load_state_dict(state["predictor"])
        self.stage, self.predictor = state["stage"], predictor
