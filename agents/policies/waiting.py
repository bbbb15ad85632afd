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
from typing import Any, Protocol, get_type_hints, runtime_checkable

import numpy as np

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
        last_pending: what ``pending`` was at the last training; 0 before the first.
        processed: mega-batches that all trainings so far were made on; with replay one counts each time.
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
    last_pending: int = 0
    processed: int = 0
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


@runtime_checkable
class Recorded(Protocol):
    """A policy that says itself what stands of it in the record of a run, the same in every process."""

    def as_plain_data(self) -> Any:
        """Its ``name``, and all that its decisions depend on, as plain JSON values; None where that cannot be said."""
        ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What the policies here share: they say when to train; how is fixed. At the last tick they train, if they can.

    Attributes:
        replay: train on everything gathered so far.
        growth: when to grow, see ``agents.growth``.

    Raises:
        ValueError: a value breaks its rule, or there is no such schedule of growth.
    """

    replay: bool = False
    growth: str = "never"

    def __post_init__(self) -> None:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in check_types(fields, get_type_hints(type(self)), _EXAMPLES).items():
            object.__setattr__(self, name, value)
        read_growth(self.growth)

    def due(self, now: Progress) -> bool:
        """Whether to train at this tick; not asked at the last one."""
        raise NotImplementedError

    def as_plain_data(self) -> Any:
        """Name and fields, for the record of a run; of a fixed wait the fields alone."""
        for name, schedule in SCHEDULES.items():
            if type(self) is schedule:
                fields = dataclasses.asdict(self)
                return fields if schedule is FixedWait else {"name": name, **fields}
        return describe(self)  # a class of somebody else's

    def __call__(self, now: Progress, /) -> Decision:
        """Train when it is due, or nothing more will come."""
        train = now.last or self.due(now)
        return Decision(train, self.replay, grow=read_growth(self.growth)(now) if train else 0)


_EXAMPLES = {"growth": "every", "probability": 0.1, "budget": 1e12, "factor": 2.0, "seed": 0}


@dataclass(frozen=True)
class FixedWait(Schedule):
    """Train after every ``wait`` mega-batches: the paper's waiting time w.

    Attributes:
        wait: waiting time w in mega-batches.
    """

    wait: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait < 1:
            raise ValueError(f"wait={self.wait}: the waiting time must be at least 1 mega-batch")

    def due(self, now: Progress) -> bool:
        """When enough is gathered."""
        return now.pending >= self.wait


@dataclass(frozen=True)
class Doubling(Schedule):
    """Train when the data seen has grown by a factor since the training before: at ticks 1, 2, 4, 8, … with 2.

    Attributes:
        factor: above 1.
        first: tick of the first training.
    """

    factor: float = 2.0
    first: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.factor > 1:
            raise ValueError(f"factor={self.factor}: the data must grow by a factor above 1; use 2")
        if self.first < 1:
            raise ValueError(f"first={self.first}: the first tick is 1")

    def due(self, now: Progress) -> bool:
        """When there is `factor` times the data of the last training's tick."""
        before = now.tick - now.pending
        return now.tick >= (self.factor * before if before else self.first)


@dataclass(frozen=True)
class ValidationTriggered(Schedule):
    """Wait longer whenever a training has not lowered the validation loss: `factor` times as long from then on.

    Attributes:
        wait: waiting time in mega-batches until the validation says otherwise.
        factor: above 1.
        least: fall of the validation loss, as a share of itself, that counts as one.
    """

    wait: int = 1
    factor: float = 2.0
    least: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait < 1:
            raise ValueError(f"wait={self.wait}: the waiting time must be at least 1 mega-batch")
        if not self.factor > 1:
            raise ValueError(f"factor={self.factor}: the waiting time must grow by a factor above 1; use 2")
        if not 0 <= self.least < 1:
            raise ValueError(f"least={self.least}: a share of the loss, from 0 to below 1")

    def due(self, now: Progress) -> bool:
        """When as much is gathered as the last training had, or `factor` times that if it brought nothing."""
        loss, before = now.validation_loss, now.previous_validation_loss
        if loss is None or before is None:
            return now.pending >= self.wait
        better = loss < before * (1 - self.least)  # a loss that is not a number is no better
        return now.pending >= now.last_pending * (1 if better else self.factor)


@dataclass(frozen=True)
class BudgetPaced(Schedule):
    """Spend a budget of FLOPs evenly over the stream: train when the next training fits into what is due by now.

    What a training costs is known from those before, per mega-batch; the first one is made at tick 1.

    Attributes:
        budget: FLOPs for the whole stream.
    """

    budget: float = 1e12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.budget > 0:
            raise ValueError(f"budget={self.budget}: a number of FLOPs above 0")

    def due(self, now: Progress) -> bool:
        """When what was spent and the next training together stay below the budget's share of this tick."""
        if now.flops is None:
            raise ValueError("flops=None in the policy's progress: the budget needs it; ask inside `with env.meter:`")
        if not now.processed:
            return True
        next_one = now.tick if self.replay else now.pending
        expected = now.flops * (now.processed + next_one)  # times `processed`, which keeps whole numbers whole
        return expected * now.ticks <= self.budget * now.tick * now.processed

    def __call__(self, now: Progress, /) -> Decision:
        """Train when it is due; at the last tick, too, only what the budget still holds."""
        train = self.due(now)
        return Decision(train, self.replay, grow=read_growth(self.growth)(now) if train else 0)


@dataclass(frozen=True)
class RandomWait(Schedule):
    """Train at each tick with one probability, drawn from the seed and the tick.

    Attributes:
        probability: from 0 to 1; 1 / w waits w mega-batches on average.
        seed: 0 or more.
    """

    probability: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability}: must lie between 0 and 1")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more")

    def due(self, now: Progress) -> bool:
        """When the draw of this tick says so."""
        return bool(np.random.default_rng([self.seed, now.tick]).random() < self.probability)


def fixed_wait(wait: int, *, replay: bool = False, growth: str = "never") -> FixedWait:
    """The policy ``FixedWait``: train after every ``wait`` mega-batches and at the last tick.

    Raises:
        ValueError: the waiting time is less than one mega-batch, or there is no such schedule of growth.
    """
    return FixedWait(wait, replay=replay, growth=growth)


def describe(policy: Policy) -> str | None:
    """How the record of a run names a policy, the same in every process; None where nothing can be relied on.

    >>> describe(fixed_wait(5))
    "agents.policies.FixedWait(replay=False, growth='never', wait=5)"
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
    """What stands in the record of a run: what the policy says of itself, else ``describe``'s text or None."""
    return policy.as_plain_data() if isinstance(policy, Recorded) else describe(policy)


# By name, as `alma run --policy` has them.
SCHEDULES: dict[str, type[Schedule]] = {
    "fixed": FixedWait,
    "doubling": Doubling,
    "validation": ValidationTriggered,
    "budget": BudgetPaced,
    "random": RandomWait,
}
