"""What a policy is: a callable from the progress of a run to a decision."""

from __future__ import annotations

import reprlib
import types
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, get_type_hints, runtime_checkable

import numpy as np

from alma_env.errors import AlmaError


class PolicyError(AlmaError, TypeError):
    """A policy returned something else than a decision, or a decision that the learner cannot carry out."""


@dataclass(frozen=True)
class Progress:
    """The state of a run when a mega-batch has arrived: the input of a policy.

    Attributes:
        tick: current tick, 1..B.
        ticks: length of the stream, B.
        pending: mega-batches gathered since the last stage, including the new one.
        stages: number of stages so far.
        last_pending: value of ``pending`` at the last stage; 0 before the first stage.
        processed: number of mega-batches that all stages so far trained on. With replay, a mega-batch counts once per
            stage.
        processed_since_restart: the same number, without the stages before the last restart.
        last_size: number of mega-batches that the last stage trained on; 0 before the first stage.
        validation_loss: mean cross-entropy of the best epoch of the last stage; None before the first stage.
        validation_error: fraction of wrong validation answers at that epoch; None before the first stage.
        previous_validation_loss: ``validation_loss`` of the stage before the last; None before the second stage.
        previous_validation_error: ``validation_error`` of the stage before the last; None before the second stage.
        guess_loss: cross-entropy of the uniform guess, the logarithm of the number of classes; None if not provided.
        parameters: number of parameters of the deployed predictor.
        first_parameters: number of parameters of the untrained predictor.
        flops: FLOPs charged so far; None if no meter is running.
    """

    tick: int
    ticks: int
    pending: int
    stages: int
    validation_loss: float | None = None
    validation_error: float | None = None
    previous_validation_loss: float | None = None
    previous_validation_error: float | None = None
    last_pending: int = 0
    processed: int = 0
    processed_since_restart: int = 0
    last_size: int = 0
    guess_loss: float | None = None
    parameters: int = 0
    first_parameters: int = 0
    flops: int | None = None

    @property
    def last(self) -> bool:
        """Whether this is the last tick of the stream."""
        return self.tick == self.ticks


@dataclass(frozen=True)
class Decision:
    """What an agent does at a tick.

    Attributes:
        train: run a stage on the gathered mega-batches; False waits.
        replay: train on earlier mega-batches too.
        grow: number of growth steps before the stage; True is 1. It has no effect while the agent waits and before the
            first stage.
        window: with `replay`, the number of earlier mega-batches, the newest ones; None is all.
        restart: train from a new random initialisation. It has no effect at the first stage.
        by: what made the decision, for the record of the run; empty for the policy itself.

    Raises:
        ValueError: `train`, `replay` or `restart` is neither True nor False; the number of growth steps is negative or
            not a whole number; or the window is less than 1, not a whole number, or given without `replay`.
    """

    train: bool
    replay: bool = False
    grow: int = 0
    window: int | None = None
    restart: bool = False
    by: str = field(default="", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("train", "replay", "restart"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):  # a text such as "no" is true
                raise ValueError(f"{name}={value!r}: must be True or False; use {name}=True, or bool() of a number")
            object.__setattr__(self, name, bool(value))  # NumPy's bool cannot be recorded
        if self.window is not None:
            if not isinstance(self.window, Integral) or self.window < 1:
                raise ValueError(
                    f"window={self.window!r}: must be a whole number of mega-batches, at least 1; use None for all, or "
                    "replay=False"
                )
            if not self.replay:
                raise ValueError(
                    f"window={self.window} without replay: it limits the earlier mega-batches of a replay; use "
                    "replay=True as well, or leave window out"
                )
            object.__setattr__(self, "window", int(self.window))
        if not isinstance(self.grow, Integral) or self.grow < 0:
            raise ValueError(
                f"grow={self.grow!r}: the number of growth steps must be a whole number, 0 or more; use grow=1"
            )
        object.__setattr__(self, "grow", int(self.grow))


def require_policy(policy: object) -> None:
    """Raise TypeError if a value is no policy.

    A class is none, and neither is a function that returns a policy, although Python can call both.
    """
    if isinstance(policy, type):
        name = policy.__name__
        raise TypeError(f"policy={name}: must be an object of this class, not the class; write policy={name}()")
    if not callable(policy):
        raise TypeError(
            f"policy={policy!r}: must be a function from agents.Progress to agents.Decision, such as "
            "agents.Doubling(); agents.make also takes a text such as 'doubling'"
        )
    if isinstance(policy, types.FunctionType) and _returns_policy(policy):
        raise TypeError(_not_called(policy.__name__))


def _returns_policy(function: types.FunctionType) -> bool:
    """Return whether the annotation of a function's result is a class of policies, as that of `fixed_wait`."""
    try:
        result = get_type_hints(function).get("return")
    except (NameError, TypeError):  # an annotation that only a type checker can read
        return False
    return isinstance(result, type) and any("__call__" in vars(kind) for kind in result.__mro__)


def _not_called(name: str) -> str:
    return (
        f"policy={name}: must be the policy that this function returns, not the function; call it with its arguments, "
        "as in policy=agents.fixed_wait(10)"
    )


def decision_of(policy: Policy, now: Progress) -> Decision:
    """Return the decision of a policy, also of one that returns True to train and False to wait.

    Raises:
        PolicyError: the policy returned something else.

    >>> decision_of(lambda now: now.tick == 2, Progress(tick=2, ticks=4, pending=1, stages=0)).train
    True
    """
    decided: object = policy(now)
    if isinstance(decided, Decision):
        return decided
    if isinstance(decided, bool | np.bool_):
        return Decision(train=bool(decided))
    if callable(decided) and isinstance(policy, types.FunctionType):
        raise PolicyError(_not_called(named(policy)))
    raise PolicyError(
        f"policy {named(policy)} returned {reprlib.repr(decided)} at tick {now.tick}: must be an agents.Decision, or "
        "True to train and False to wait"
    )


def named(policy: Policy) -> str:
    """Return the name of a policy, and the place of its code, for the message of an error.

    >>> from agents.policies import FixedWait
    >>> named(FixedWait(5))
    'FixedWait (waiting.py, line ...)'
    """
    name = getattr(policy, "__name__", type(policy).__name__)
    function = policy if hasattr(policy, "__code__") else type(policy).__call__
    code = getattr(function, "__code__", None)  # none: the function is not written in Python
    return name if code is None else f"{name} ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def megabatches_of(tick: int, pending: int, *, replay: bool, window: int | None = None) -> int:
    """Return the number of mega-batches of a stage: the gathered ones, and with replay earlier ones.

    >>> megabatches_of(10, 2, replay=True), megabatches_of(10, 2, replay=True, window=3)
    (10, 5)
    """
    if not replay:
        return pending
    return tick if window is None else min(tick, pending + window)


class Policy(Protocol):
    """A function from progress to a decision, called once per tick.

    A killed run repeats some ticks when it continues. A policy must therefore be a pure function of its ``Progress``,
    or have ``state_dict`` and ``load_state_dict``. That state (plain values and tensors) is saved with the agent.

    ``agents.run`` writes a description of the policy into the run folder. The description must be the same in every
    process. A dataclass is described by its fields, a function at the top level of a module by its name. A lambda, a
    nested function and any other object have no such description, and ``agents.run`` refuses to write a folder for
    them.
    """

    def __call__(self, now: Progress, /) -> Decision | bool:
        """Return the decision for this tick; True trains, and False waits."""
        ...


@runtime_checkable
class StatefulPolicy(Policy, Protocol):
    """A policy whose decisions depend on more than its ``Progress``. Create a new one for each agent."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later decisions depend on, as plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned; later decisions are then the same."""
        ...
