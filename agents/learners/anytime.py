"""Anytime learning: Algorithm 1 of the ALMA paper, with the policy that decides when to train taken out of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import nn

from agents.policies import Decision, Policy, Progress, StatefulPolicy
from agents.stage import Examples
from agents.union import union
from alma_env import meter

MegaBatch = Mapping[str, Mapping[str, np.ndarray[Any, Any]]]


class Report(Protocol):
    """What a policy may be told about a stage: validation loss and error of what was kept."""

    @property
    def best_loss(self) -> float:
        """Mean cross-entropy on V."""
        ...

    @property
    def best_error(self) -> float:
        """Fraction of wrong answers on V."""
        ...


class Learner(Protocol):
    """How to train and grow; when to is the policy's affair.

    ``predictor`` is what is deployed: a module from raw inputs (n, ...) to logits (n, C), or (n, T, V) of text.
    """

    @property
    def predictor(self) -> nn.Module:
        """The module to deploy after the last training; the untrained one before."""
        ...

    def train(self, train: Examples, valid: Examples) -> Report:
        """One stage: train on the gathered mega-batches, select on their validation parts."""
        ...

    def grow(self, train: Examples, valid: Examples) -> None:
        """Add capacity before a stage, seeing that stage's data."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next stages depend on."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``'s result with the same numbers to the last bit."""
        ...


@dataclass(frozen=True)
class StageRecord:
    """One training that a run made.

    Attributes:
        tick: when, 1..B.
        pending: mega-batches gathered since the training before.
        examples: training examples that it used; with replay those of all ``tick`` mega-batches.
        replay: whether it used all of them.
        grow: growth steps that were made before it.
        validation_loss: mean cross-entropy of its best epoch.
        validation_error: fraction of wrong validation answers at that epoch.
        held_out_error: error of what was deployed on the validation parts of the whole stream; None where the run did
            not ask for it.
    """

    tick: int
    pending: int
    examples: int
    replay: bool
    grow: int
    validation_loss: float
    validation_error: float
    held_out_error: float | None = None


class AnytimeAgent:
    """Gathers mega-batches and, when the policy says so, (grows and) trains on them: Algorithm 1, corrected.

    It runs to the last tick inclusive, does not grow before the first training, and grows before it trains.

    Args:
        learner: how to train and grow.
        policy: when to.
        ticks: length of the stream, B.
        config: the full recipe, as plain data, for the record of a run.
        held_out_valid: the validation part is the same set in every mega-batch, as in a stream of text: it is used as
            it is, not gathered.
        classes: number of classes, or for text of tokens, for policies that compare a loss with that of a guess.
    """

    def __init__(
        self,
        learner: Learner,
        policy: Policy,
        ticks: int,
        config: dict[str, Any] | None = None,
        *,
        held_out_valid: bool = False,
        classes: int | None = None,
    ) -> None:
        self.learner = learner
        self.policy = policy
        self.ticks = ticks
        self.config = config or {}
        self.held_out_valid = held_out_valid
        self.classes = classes
        self.training_on = 0  # training examples of the stage that runs, for progress displays
        self.tick = 0
        self.pending = 0
        self.history: list[StageRecord] = []
        self._gathered: list[MegaBatch] = []  # one per tick so far
        self._first_parameters = self._parameters = _parameters_of(learner.predictor)

    @property
    def predictor(self) -> nn.Module:
        """What answers now; give it to ``env.reset(options={"predictor": agent.predictor})`` for tick 0."""
        return self.learner.predictor

    @property
    def stages(self) -> int:
        """Trainings so far."""
        return len(self.history)

    def observe(self, observation: MegaBatch) -> nn.Module | None:
        """Take in the mega-batch that has arrived; the predictor to deploy if it was trained, None while waiting.

        Call it inside ``with env.meter:``.
        """
        self.gather(observation)
        return self.carry_out(self.policy(self.progress()))

    def gather(self, observation: MegaBatch) -> None:
        """Take in the mega-batch that has arrived, and decide nothing yet."""
        self.tick += 1
        self.pending += 1
        self._gathered.append(observation)

    def carry_out(self, decision: Decision) -> nn.Module | None:
        """Do what was decided about the mega-batch gathered last: wait, or (grow and) train.

        Call it inside ``with env.meter:``, once after each ``gather``.
        """
        if not decision.train:
            return None
        train, valid = self.examples(decision)
        steps = decision.grow if self.stages else 0
        for _ in range(steps):
            self.learner.grow(train, valid)
        report = self.learner.train(train, valid)
        return self.trained(decision, report, grow=steps)

    def examples(self, decision: Decision) -> tuple[Examples, Examples]:
        """What a stage that was decided on trains and validates on."""
        recent = self._gathered if decision.replay else self._gathered[-self.pending :]
        train = union([megabatch["train"] for megabatch in recent])
        valid = union([megabatch["valid"] for megabatch in (recent[-1:] if self.held_out_valid else recent)])
        self.training_on = len(train)
        return train, valid

    def trained(self, decision: Decision, report: Report, *, grow: int = 0) -> nn.Module:
        """Enter a stage of the learner into the history, after so many growth steps; what is to be deployed."""
        self.history.append(
            StageRecord(
                tick=self.tick,
                pending=self.pending,
                examples=self.training_on,
                replay=decision.replay,
                grow=grow,
                validation_loss=report.best_loss,
                validation_error=report.best_error,
            )
        )
        self.pending = 0
        self._parameters = _parameters_of(self.learner.predictor)
        return self.learner.predictor

    def progress(self) -> Progress:
        """What the policy is shown."""
        last = self.history[-1] if self.history else None
        before = self.history[-2] if len(self.history) > 1 else None
        running = meter.running()
        return Progress(
            tick=self.tick,
            ticks=self.ticks,
            pending=self.pending,
            stages=self.stages,
            validation_loss=last.validation_loss if last else None,
            validation_error=last.validation_error if last else None,
            previous_validation_loss=before.validation_loss if before else None,
            previous_validation_error=before.validation_error if before else None,
            last_pending=last.pending if last else 0,
            processed=sum(record.tick if record.replay else record.pending for record in self.history),
            guess_loss=math.log(self.classes) if self.classes else None,
            parameters=self._parameters,
            first_parameters=self._first_parameters,
            flops=running.total if running else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """Learner, policy (if it has a state), where the stream stands; no data, since the stream can give it again."""
        policy = {"policy": self.policy.state_dict()} if isinstance(self.policy, StatefulPolicy) else {}
        return policy | {
            "tick": self.tick,
            "pending": self.pending,
            "history": [dataclasses.asdict(record) for record in self.history],
            "parameters": [self._first_parameters, self._parameters],
            "learner": self.learner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], megabatch: Callable[[int], MegaBatch]) -> None:
        """Go on from ``state_dict``.

        Args:
            state: what ``state_dict`` returned.
            megabatch: gives mega-batch t again, for each t up to the saved tick: ``env.megabatch``.
        """
        self.tick, self.pending, self._gathered = 0, 0, []
        for tick in range(1, state["tick"] + 1):
            self.gather(megabatch(tick))
        self.pending = state["pending"]
        self.history = [StageRecord(**record) for record in state["history"]]
        self._first_parameters, self._parameters = state["parameters"]
        if isinstance(self.policy, StatefulPolicy):
            self.policy.load_state_dict(state["policy"])
        self.learner.load_state_dict(state["learner"])


def _parameters_of(predictor: nn.Module) -> int:
    return sum(parameter.numel() for parameter in predictor.parameters())
