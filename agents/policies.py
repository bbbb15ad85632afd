"""When to wait, train, replay and grow: a policy is any callable from the stream's progress to a decision.

>>> every_ten = fixed_wait(10)
>>> every_ten(Progress(tick=10, ticks=100, pending=10, stages=0))
Decision(train=True, replay=False, grow=0)
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

from agents.checks import check_types
from agents.growth import growth as read_growth


@dataclass(frozen=True)
class Progress:
    """What a policy may know when a mega-batch has arrived.

    Attributes:
        tick: the tick that is about to be answered, 1..B.
        ticks: the length of the stream, B.
        pending: mega-batches gathered since the last training, the new one included.
        stages: trainings so far.
        validation_loss: mean cross-entropy of the best epoch of the last training, None before the first.
        validation_error: fraction of wrong validation answers at the same epoch, None before the first.
        previous_validation_loss: ``validation_loss`` of the training before the last, None before the second.
        previous_validation_error: ``validation_error`` of that training.
        guess_loss: cross-entropy of the uniform guess, ln of the number of classes; None where nobody told it.
        parameters: parameters of the predictor that is deployed.
        first_parameters: those of the untrained one.
        flops: FLOPs charged so far; None where no meter runs.
    """

    tick: int
    ticks: int
    pending: int
    stages: int
    validation_loss: float | None = None
    validation_error: float | None = None
    previous_validation_loss: float | None = None
    previous_validation_error: float | None = None
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
    """What to do at a tick.

    Attributes:
        train: train on what was gathered, or wait.
        replay: train on all earlier data, too.
        grow: growth steps before the training; True is one. Without effect while waiting and before the first training.

    Raises:
        ValueError: the number of growth steps is negative or not a whole number.
    """

    train: bool
    replay: bool = False
    grow: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.grow, Integral) or self.grow < 0:
            raise ValueError(f"grow={self.grow!r}: must be a number of growth steps, 0 or more, as in grow=1")
        object.__setattr__(self, "grow", int(self.grow))


class Policy(Protocol):
    """From progress to a decision, asked once per tick.

    A run that was killed repeats some ticks, so a policy must be a pure function of its ``Progress``; or it has
    ``state_dict`` and ``load_state_dict``, whose state (plain values and tensors) is saved and restored with the agent.

    A run is recorded with a description of its policy that is the same in every process: a dataclass (best a frozen
    one, as ``FixedWait``) is described by its fields, a function at the top level of a module by its name. A lambda, a
    function inside a function and any other object cannot be told from others of its kind, so ``agents.run`` refuses
    to write a folder for them.
    """

    def __call__(self, now: Progress, /) -> Decision:
        """What to do at this tick."""
        ...


@runtime_checkable
class StatefulPolicy(Protocol):
    """A policy that remembers more than its ``Progress`` tells; make a new one for each agent."""

    def __call__(self, now: Progress, /) -> Decision:
        """What to do at this tick."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next decisions depend on, as plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``'s result with the same decisions."""
        ...


@dataclass(frozen=True)
class FixedWait:
    """Train after every ``wait`` mega-batches (the paper's waiting time w) and on what is left at the last tick.

    Attributes:
        wait: waiting time w in mega-batches.
        replay: train on everything gathered so far.
        growth: when to grow, see ``agents.growth``.

    Raises:
        ValueError: the waiting time is less than one mega-batch, or there is no such schedule of growth.
    """

    wait: int
    replay: bool = False
    growth: str = "never"

    def __post_init__(self) -> None:
        kinds = {"wait": int, "replay": bool, "growth": str}
        for name, value in check_types(dataclasses.asdict(self), kinds, {"growth": "every"}).items():
            object.__setattr__(self, name, value)
        if self.wait < 1:
            raise ValueError(f"wait={self.wait}: the waiting time must be at least 1 mega-batch")
        read_growth(self.growth)

    def __call__(self, now: Progress, /) -> Decision:
        """Train when enough is gathered, or nothing more will come."""
        train = now.pending >= self.wait or now.last
        return Decision(train, self.replay, grow=read_growth(self.growth)(now) if train else 0)


def fixed_wait(wait: int, *, replay: bool = False, growth: str = "never") -> FixedWait:
    """The policy ``FixedWait``: train after every ``wait`` mega-batches and at the last tick.

    Raises:
        ValueError: the waiting time is less than one mega-batch, or there is no such schedule of growth.
    """
    return FixedWait(wait, replay, growth)


def describe(policy: Policy) -> str | None:
    """How the record of a run names a policy, the same in every process; None where nothing can be relied on.

    >>> describe(fixed_wait(5))
    "agents.policies.FixedWait(wait=5, replay=False, growth='never')"
    >>> describe(lambda now: Decision(train=True)) is None
    True
    """
    if isinstance(policy, types.FunctionType):
        module = sys.modules.get(policy.__module__)
        found = getattr(module, policy.__qualname__, None) is policy  # not so for lambdas, closures, methods
        return f"{policy.__module__}.{policy.__qualname__}" if found else None
    # A subclass that is no dataclass itself may hold more than its inherited fields tell.
    if "__dataclass_fields__" in vars(type(policy)):
        text = repr(policy)
        if type(policy).__repr__ is not object.__repr__ and not re.search(r" at 0x[0-9a-fA-F]+", text):
            return f"{type(policy).__module__}.{text}"
    return None


NO_DESCRIPTION = (
    "a lambda, a function inside a function or an object without a stable description cannot be told from "
    "another policy of its kind, so a run's folder could go on with the wrong one; make the policy a frozen dataclass "
    "with __call__ or a function at the top level of a module, or run without a folder"
)


def as_plain_data(policy: Policy) -> Any:
    """What stands in the record of a run: the fields of a fixed wait, else ``describe``'s name or None."""
    return dataclasses.asdict(policy) if type(policy) is FixedWait else describe(policy)
