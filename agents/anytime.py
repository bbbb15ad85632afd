"""Anytime learning: Algorithm 1 of the ALMA paper, with the policy that decides when to train taken out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from torch import nn

from agents.policies import Policy, Progress, StatefulPolicy
from agents.stage import Examples
from agents.union import union

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
    """

    def __init__(
        self,
        learner: Learner,
        policy: Policy,
        ticks: int,
        config: dict[str, Any] | None = None,
        *,
        held_out_valid: bool = False,
    ) -> None:
        self.learner = learner
        self.policy = policy
        self.ticks = ticks
        self.config = config or {}
        self.held_out_valid = held_out_valid
        self.training_on = 0  # training examples of the stage that runs, for progress displays
        self.tick = 0
        self.pending = 0
        self.stages = 0
        self._validation: tuple[float, float] | None = None  # loss and error of the last stage's best epoch
        self._previous_loss: float | None = None  # that loss of the stage before it
        self._gathered: list[MegaBatch] = []  # one per tick so far

    @property
    def predictor(self) -> nn.Module:
        """What answers now; give it to ``env.reset(options={"predictor": agent.predictor})`` for tick 0."""
        return self.learner.predictor

    def observe(self, observation: MegaBatch) -> nn.Module | None:
        """Take in the mega-batch that has arrived; the predictor to deploy if it was trained, None while waiting.

        Call it inside ``with env.meter:``.
        """
        self._gather(observation)
        decision = self.policy(self.progress())
        if not decision.train:
            return None
        recent = self._gathered if decision.replay else self._gathered[-self.pending :]
        train = union([megabatch["train"] for megabatch in recent])
        valid = union([megabatch["valid"] for megabatch in (recent[-1:] if self.held_out_valid else recent)])
        for _ in range(decision.grow if self.stages else 0):
            self.learner.grow(train, valid)
        self.training_on = len(train)
        report = self.learner.train(train, valid)
        self._previous_loss = self._validation[0] if self._validation else None
        self._validation = (report.best_loss, report.best_error)
        self.stages += 1
        self.pending = 0
        return self.learner.predictor

    def progress(self) -> Progress:
        """What the policy is shown."""
        loss, error = self._validation or (None, None)
        return Progress(
            tick=self.tick,
            ticks=self.ticks,
            pending=self.pending,
            stages=self.stages,
            validation_loss=loss,
            validation_error=error,
            previous_validation_loss=self._previous_loss,
        )

    def state_dict(self) -> dict[str, Any]:
        """Learner, policy (if it has a state), where the stream stands; no data, since the stream can give it again."""
        policy = {"policy": self.policy.state_dict()} if isinstance(self.policy, StatefulPolicy) else {}
        return policy | {
            "tick": self.tick,
            "pending": self.pending,
            "stages": self.stages,
            "validation": self._validation,
            "previous_loss": self._previous_loss,
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
            self._gather(megabatch(tick))
        self.pending = state["pending"]
        self.stages = state["stages"]
        self._validation = state["validation"]
        self._previous_loss = state["previous_loss"]
        if isinstance(self.policy, StatefulPolicy):
            self.policy.load_state_dict(state["policy"])
        self.learner.load_state_dict(state["learner"])

    def _gather(self, observation: MegaBatch) -> None:
        self.tick += 1
        self.pending += 1
        self._gathered.append(observation)
