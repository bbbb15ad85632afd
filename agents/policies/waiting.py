"""The policies that decide when to train and keep everything else fixed.

>>> from agents.policies import Progress
>>> every_ten = fixed_wait(10)
>>> every_ten(Progress(tick=10, ticks=100, pending=10, stages=0))
Decision(train=True, replay=False, grow=0, window=None, restart=False)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from agents.policies.growing import growth as read_growth
from agents.policies.progress import Decision, Progress, megabatches_of
from agents.policies.records import describe
from agents.policies.replaying import replayed, shortest
from agents.policies.validation import check_types


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Base class of the policies in this module. A schedule also trains at its last tick, except `BudgetPaced`.

    Attributes:
        replay: which earlier mega-batches a training repeats: ``none`` or False, ``all`` or True, or ``last:k``, the k
            newest ones.
        growth: when to grow, see ``agents.policies.growing``.
        stop: the share of the stream after which it never trains. Its last tick is the last one within this share: a
            late training improves few answers.
        restart: the share of the stream within which each training starts from a new random initialisation, so that
            an unlucky start does not stay; 0 for no training, 1 for all.

    Raises:
        ValueError: a value breaks its rule, or the growth schedule does not exist.
    """

    replay: bool | str = False
    growth: str = "never"
    stop: float = 1.0
    restart: float = 0.0

    def __post_init__(self) -> None:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        kind: Any = type(self)  # mypy takes the hash of its objects for that of the class
        for name, value in check_types(fields, _types_of(kind), _EXAMPLES).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "replay", shortest(self.replay))
        read_growth(self.growth)
        if not 0 < self.stop <= 1:
            raise ValueError(f"stop={self.stop}: the share of the stream must be above 0 and at most 1; use stop=1")
        if not 0 <= self.restart <= 1:
            raise ValueError(f"restart={self.restart}: the share of the stream must be from 0 to 1; use restart=0.1")

    def due(self, now: Progress) -> bool:
        """Return whether to train at this tick. The base class does not call it at the last tick or later."""
        raise NotImplementedError

    def as_plain_data(self) -> Any:
        """Return the record of this policy: its name and fields, without ``stop`` and ``restart`` if it never does.

        The record of a fixed wait has no name, unless it has a window of replay, stops or restarts.
        """
        for name, schedule in SCHEDULES.items():
            if type(self) is schedule:
                fields = dataclasses.asdict(self)
                unused = [field for field, never in (("stop", 1), ("restart", 0)) if fields[field] == never]
                plain = len(unused) == 2 and isinstance(self.replay, bool)
                for field in unused:
                    del fields[field]
                return fields if schedule is FixedWait and plain else {"name": name, **fields}
        return describe(self)  # a custom schedule

    def __call__(self, now: Progress, /) -> Decision:
        """Decide to train if training is due or this is the last tick."""
        last = self.last_tick(now.ticks)
        return self._decision(now, train=now.tick == last or (now.tick < last and self.due(now)))

    def last_tick(self, ticks: int) -> int:
        """Return the last tick of a stream at which this schedule trains."""
        return max(_last_within(self.stop, ticks), 1)

    def _decision(self, now: Progress, *, train: bool) -> Decision:
        if not train:
            return Decision(train=False)
        repeated = replayed(self.replay)
        restart = now.tick <= _last_within(self.restart, now.ticks) and now.stages > 0
        return Decision(True, repeated.any, read_growth(self.growth)(now), repeated.window, restart)


_EXAMPLES = {
    "growth": "every",
    "stop": 0.8,
    "restart": 0.1,
    "probability": 0.1,
    "budget": 1e12,
    "factor": 2.0,
    "seed": 0,
}


@dataclass(frozen=True)
class FixedWait(Schedule):
    """Train after every ``wait`` mega-batches: the paper's waiting time w.

    Attributes:
        wait: waiting time w in mega-batches.
    """

    wait: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_wait(self.wait)

    def due(self, now: Progress) -> bool:
        """Return whether at least ``wait`` mega-batches are gathered."""
        return now.pending >= self.wait


@dataclass(frozen=True)
class Geometric(Schedule):
    """Train when the tick is at least `factor` times the tick of the last stage.

    So a training waits for data in proportion to the data so far.

    Attributes:
        factor: above 1.
        first: tick of the first stage.
    """

    factor: float = 1.6
    first: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_factor(self.factor)
        if self.first < 1:
            raise ValueError(f"first={self.first}: the tick of the first stage must be at least 1; use first=1")

    def due(self, now: Progress) -> bool:
        """Return whether the tick has reached `factor` times the tick of the last stage."""
        before = now.tick - now.pending
        return now.tick >= (_times(self.factor, before) if before else self.first)


@dataclass(frozen=True)
class Doubling(Geometric):
    """Train at the ticks 1, 2, 4, 8, …: the geometric schedule with a factor of 2."""

    factor: float = 2.0


@dataclass(frozen=True)
class ValidationTriggered(Schedule):
    """Multiply the waiting time by `factor` after each stage that did not lower the validation loss.

    Attributes:
        wait: waiting time in mega-batches until a stage fails to lower the validation loss.
        factor: above 1.
        least: smallest relative decrease of the validation loss that counts as an improvement.
    """

    wait: int = 1
    factor: float = 2.0
    least: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_wait(self.wait)
        _require_factor(self.factor)
        if not 0 <= self.least < 1:
            raise ValueError(f"least={self.least}: the relative decrease must be at least 0 and below 1; use least=0.0")

    def due(self, now: Progress) -> bool:
        """Return whether enough mega-batches are gathered.

        The number needed is that of the last stage, times `factor` if that stage did not lower the validation loss.
        """
        loss, before = now.validation_loss, now.previous_validation_loss
        if loss is None or before is None:
            return now.pending >= self.wait
        better = loss < before * (1 - self.least)  # False if the loss is NaN
        return now.pending >= _times(1 if better else self.factor, now.last_pending)


@dataclass(frozen=True)
class BudgetPaced(Schedule):
    """Spend a budget of FLOPs evenly over the stream.

    The first stage is at tick 1. Later stages are expected to cost, per mega-batch, the mean of the stages so far. A
    stage starts when its expected cost fits into the part of the budget that is available at this tick.

    Attributes:
        budget: FLOPs for the whole stream.
    """

    budget: float = 1e12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.budget < math.inf:
            raise ValueError(f"budget={self.budget}: the number of FLOPs must be finite and above 0; use budget=1e12")

    def due(self, now: Progress) -> bool:
        """Return whether the FLOPs spent plus those of the next stage are at most budget · tick / ticks."""
        if now.flops is None:
            raise ValueError(
                "flops=None in the progress: the policy needs the FLOPs so far; call it inside `with env.meter:`"
            )
        if not now.processed:
            return True
        repeated = replayed(self.replay)
        next_stage = megabatches_of(now.tick, now.pending, replay=repeated.any, window=repeated.window)
        expected = now.flops * (now.processed + next_stage)  # times `processed`, so that integers stay integers
        return expected * now.ticks <= self.budget * now.tick * now.processed

    def __call__(self, now: Progress, /) -> Decision:
        """Decide to train if training is due; the budget also holds at the last tick."""
        return self._decision(now, train=now.tick <= self.last_tick(now.ticks) and self.due(now))


@dataclass(frozen=True)
class RandomWait(Schedule):
    """Train at each tick with the same probability. The random number depends on the seed and the tick only.

    Attributes:
        probability: from 0 to 1; 1 / w gives a mean waiting time of w mega-batches.
        seed: 0 or more.
    """

    probability: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability}: must be from 0 to 1; use probability=0.1")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more; use seed=0")

    def due(self, now: Progress) -> bool:
        """Return whether the random number of this tick is below the probability."""
        return bool(np.random.default_rng([self.seed, now.tick]).random() < self.probability)


def fixed_wait(wait: int, *, replay: bool | str = False, growth: str = "never") -> FixedWait:
    """Return the policy ``FixedWait``: train after every ``wait`` mega-batches and at the last tick.

    Raises:
        ValueError: the waiting time is less than 1 mega-batch, or the growth schedule does not exist.
    """
    return FixedWait(wait, replay=replay, growth=growth)


@cache
def _types_of(schedule: type[Schedule]) -> dict[str, Any]:
    return get_type_hints(schedule)


def _last_within(share: float, ticks: int) -> int:
    """Return the last tick within a share of the stream."""
    return math.floor(_times(share, ticks))


def _times(factor: float, count: int) -> float:
    """Return a multiple of a count; 1.1 · 170 is 187 and 0.29 · 100 is 29, although the products of floats are not."""
    return round(factor * count, 9)


def _require_factor(factor: float) -> None:
    if not 1 < factor < math.inf:
        raise ValueError(f"factor={factor}: the factor must be finite and above 1; use factor=2")


def _require_wait(wait: int) -> None:
    if wait < 1:
        raise ValueError(f"wait={wait}: the waiting time must be at least 1 mega-batch; use wait=1")


# The rule that docs/waiting.md recommends, and the one that decides where a learned schedule was not trained.
RULE = Geometric(factor=1.6, stop=0.8)

# Schedules by the names that `alma run --policy` accepts.
SCHEDULES: dict[str, type[Schedule]] = {
    "fixed": FixedWait,
    "geometric": Geometric,
    "doubling": Doubling,
    "validation": ValidationTriggered,
    "budget": BudgetPaced,
    "random": RandomWait,
}
