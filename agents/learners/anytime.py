"""Anytime learning: Algorithm 1 of the ALMA paper, with a separate policy that decides when to train."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from agents.learners.joined_parts import Part, join_parts
from agents.policies import Decision, Policy, Progress, StatefulPolicy
from agents.policies.progress import PolicyError, decision_of, megabatches_of, named, require_policy
from agents.training.stage import CannotGrowError, Examples, LearnerError, as_number
from alma_env.metering import meter

MegaBatch = Mapping[str, Part]  # "train" and "valid"


class Report(Protocol):
    """The result of a stage that a policy may use: validation loss and error of the kept weights."""

    @property
    def best_loss(self) -> float:
        """Mean cross-entropy on V."""

    @property
    def best_error(self) -> float:
        """Fraction of wrong answers on V."""


class Learner(Protocol):
    """How to train and grow; the policy decides when.

    ``predictor`` is the deployed module. It maps raw inputs (n, ...) to logits (n, C), for text (n, T, V).
    """

    @property
    def predictor(self) -> nn.Module:
        """The module to deploy: the result of the last stage, or the untrained module before the first."""

    def train(self, train: Examples, valid: Examples) -> Report:
        """Run one stage: train on the gathered mega-batches, select on their validation parts."""

    def grow(self, train: Examples, valid: Examples) -> None:
        """Add capacity before a stage, given the data of that stage."""

    def restart(self) -> None:
        """Let the next stage start from a new random initialisation; called directly before it."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later stages depend on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned; later stages then give the same numbers to the last bit."""


@dataclass(frozen=True)
class StageRecord:
    """One stage of a run.

    Attributes:
        tick: tick of the stage, 1..B.
        pending: mega-batches gathered since the stage before.
        examples: number of training examples; with `replay` also those of earlier mega-batches.
        grow: growth steps before the stage.
        validation_loss: mean cross-entropy of the best epoch.
        validation_error: fraction of wrong validation answers at that epoch.
        held_out_error: error of the predictor, deployed or refused for a budget, on the validation parts of the whole
            stream; None unless the run was started with ``record``.
        window: with `replay`, the number of earlier mega-batches at most; None is all.
        restart: whether the stage started from a new random initialisation.
        by: what made the decision, if not the policy itself, such as the rule that a learned policy falls back on.
    """

    tick: int
    pending: int
    examples: int
    replay: bool
    grow: int
    validation_loss: float
    validation_error: float
    held_out_error: float | None = None
    window: int | None = None
    restart: bool = False
    by: str = ""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> StageRecord:
        """Return the record with the values of a file; ValueError or TypeError if one is wrong, missing or unknown."""
        record = cls(**values)
        for name, kinds in _KINDS.items():
            if not isinstance(value := getattr(record, name), kinds):
                expected = " or ".join(kind.__name__ for kind in kinds)
                raise ValueError(f"{name}={value!r} of a stage: must be of type {expected}")
        return record

    @property
    def megabatches(self) -> int:
        """Number of mega-batches of the stage."""
        return megabatches_of(self.tick, self.pending, replay=self.replay, window=self.window)


_NUMBER, _NOTHING = (float, int), type(None)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("tick", "pending", "examples", "grow"), (int,)),
    **dict.fromkeys(("replay", "restart"), (bool,)),
    **dict.fromkeys(("validation_loss", "validation_error"), _NUMBER),
    "held_out_error": (*_NUMBER, _NOTHING),
    "window": (int, _NOTHING),
    "by": (str,),
}


class AnytimeAgent:
    """Gathers mega-batches and (grows and) trains on them when the policy decides to: Algorithm 1, corrected.

    The corrections, which docs/differences.md explains: it runs to the last tick inclusive, does not grow before the
    first stage, and grows before it trains.

    Args:
        learner: how to train and grow.
        policy: when to train and grow.
        ticks: length of the stream, B.
        config: the full configuration, as plain data, for the record of a run.
        held_out_valid: whether every mega-batch has the same validation part, as in a stream of text. If so, it is not
            gathered.
        classes: number of classes, for text the number of tokens. Policies need it to compare a loss with that of the
            uniform guess.

    Raises:
        TypeError: the policy is no function, or a class in the place of its object.
        LearnerError: the predictor of the learner is no module.
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
        require_policy(policy)
        self.learner = learner
        self.policy = policy
        self.ticks = ticks
        self.config = config or {}
        self.held_out_valid = held_out_valid
        self.classes = classes
        self.training_on = 0  # training examples of the current stage, for progress displays
        self.tick = 0
        self.pending = 0
        self.history: list[StageRecord] = []
        self._gathered: list[MegaBatch] = []  # one per tick so far
        self._first_parameters = self._parameters = _parameters_of(learner)

    @property
    def predictor(self) -> nn.Module:
        """The current predictor. For tick 0, pass it to ``env.reset(options={"predictor": agent.predictor})``."""
        return self.learner.predictor

    @property
    def stages(self) -> int:
        """Number of stages so far."""
        return len(self.history)

    def observe(self, observation: MegaBatch) -> nn.Module | None:
        """Take in a new mega-batch; return the predictor to deploy after a stage, None if the agent waits.

        Call it inside ``with env.meter:``.

        Raises:
            PolicyError: the policy returned no decision, or decided that a learner of a fixed size grows.
            LearnerError: as for ``carry_out``.
        """
        self.gather(observation)
        decision = decision_of(self.policy, self.progress())
        try:
            return self.carry_out(decision)
        except CannotGrowError as error:
            raise PolicyError(
                f"policy {named(self.policy)} returned {decision} at tick {self.tick}: {error}"
            ) from error

    def gather(self, observation: MegaBatch) -> None:
        """Take in a new mega-batch without a decision; ValueError if the stream is longer than the agent's."""
        if self.tick == self.ticks:
            raise ValueError(
                f"tick={self.tick + 1} for an agent with ticks={self.ticks}: its policy knows the length of the "
                "stream; make the agent with this environment, or a new agent for another stream"
            )
        self.tick += 1
        self.pending += 1
        self._gathered.append(observation)

    def carry_out(self, decision: Decision) -> nn.Module | None:
        """Carry out the decision for the current tick: wait, or (grow and) train.

        Call it inside ``with env.meter:``, once after each ``gather``. It returns what ``observe`` returns.

        Raises:
            ValueError: no mega-batch has arrived since the last training.
            LearnerError: ``train`` returned no report, the predictor of the learner is no module, or a learner of a
                fixed size would have to grow.
        """
        if not decision.train:
            return None
        if not self.pending:
            raise ValueError(
                f"carry_out({decision}) at tick {self.tick}: no mega-batch has arrived since the last training; call "
                "gather first"
            )
        size = megabatches_of(self.tick, self.pending, replay=decision.replay, window=decision.window)
        recent = self._gathered[-size:]
        train = join_parts([megabatch["train"] for megabatch in recent])
        valid = join_parts([megabatch["valid"] for megabatch in (recent[-1:] if self.held_out_valid else recent)])
        self.training_on = len(train)
        growth_steps = decision.grow if self.stages else 0
        for _ in range(growth_steps):
            self.learner.grow(train, valid)
        restart = decision.restart and self.stages > 0
        if restart:
            self.learner.restart()
        loss, error = _results_of(self.learner, self.learner.train(train, valid))
        self._parameters = _parameters_of(self.learner)
        self.history.append(
            StageRecord(
                tick=self.tick,
                pending=self.pending,
                examples=self.training_on,
                replay=decision.replay,
                grow=growth_steps,
                validation_loss=loss,
                validation_error=error,
                window=decision.window if decision.replay else None,
                restart=restart,
                by=decision.by,
            )
        )
        self.pending = 0
        return self.learner.predictor

    def progress(self) -> Progress:
        """Return the input of the policy."""
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
            processed=sum(record.megabatches for record in self.history),
            processed_since_restart=sum(record.megabatches for record in self._since_restart()),
            last_size=last.megabatches if last else 0,
            guess_loss=math.log(self.classes) if self.classes else None,
            parameters=self._parameters,
            first_parameters=self._first_parameters,
            flops=running.total if running else None,
        )

    def _since_restart(self) -> list[StageRecord]:
        starts = [number for number, record in enumerate(self.history) if record.restart]
        return self.history[starts[-1] if starts else 0 :]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of learner, policy (if it has one) and stream, without data, which the stream repeats."""
        policy = {"policy": self.policy.state_dict()} if isinstance(self.policy, StatefulPolicy) else {}
        return policy | {
            "tick": self.tick,
            "pending": self.pending,
            "history": [dataclasses.asdict(record) for record in self.history],
            "parameters": [self._first_parameters, self._parameters],
            "learner": self.learner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], megabatch: Callable[[int], MegaBatch]) -> None:
        """Restore a state that ``state_dict`` returned; `megabatch` returns mega-batch t, as ``env.megabatch`` does."""
        self.tick, self.pending, self._gathered = 0, 0, []
        for tick in range(1, state["tick"] + 1):
            self.gather(megabatch(tick))
        self.pending = state["pending"]
        self.history = [StageRecord(**record) for record in state["history"]]
        self._first_parameters, self._parameters = state["parameters"]
        if isinstance(self.policy, StatefulPolicy):
            self.policy.load_state_dict(state.get("policy", {}))  # none: an earlier version had no state to save
        self.learner.load_state_dict(state["learner"])


def _results_of(learner: Learner, report: object) -> tuple[float, float]:
    """Return the validation loss and error of a report."""
    loss, error = (as_number(getattr(report, name, None)) for name in ("best_loss", "best_error"))
    if loss is None or error is None:
        raise LearnerError(
            f"{type(learner).__name__}.train returned {reprlib.repr(report)}: must be an agents.StageReport, or an "
            "object with the numbers best_loss and best_error; return for example "
            "agents.StageReport((loss,), (error,), best_epoch=1)"
        )
    return loss, error


def _parameters_of(learner: Learner) -> int:
    predictor: object = learner.predictor
    if not isinstance(predictor, nn.Module):
        raise LearnerError(
            f"{type(learner).__name__}.predictor={reprlib.repr(predictor)}: must be a torch.nn.Module, which maps raw "
            "inputs to logits; set it before the first and after every training"
        )
    return sum(parameter.numel() for parameter in predictor.parameters())
