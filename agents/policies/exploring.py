"""Runs that try what a policy could do: random decisions whose frequencies differ from run to run.

A surrogate learns from such runs what each decision does, also at moments at which no sensible schedule makes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.policies.progress import Decision, Progress, megabatches_of
from agents.policies.validation import check_types

# Each run has one share of each kind.
REPLAY = (0.0, 0.3, 0.7, 1.0)  # of the stages with replay
RESTART = (0.0, 0.0, 0.1, 0.5)  # of the stages that restart
GROWTH = (0.0, 0.3, 1.0)  # of the stages with growth
WINDOW = 0.5  # of the replays, those that repeat a part of the earlier mega-batches; the same in all runs
FACTORS = (1.1, 4.0)  # growth of the data between two stages, the smallest and the largest
PASSES = 8.0  # over the stream: the most training, in mega-batches, that a run may spend for each that has arrived


@dataclass(frozen=True)
class Habits:
    """How often one run does what.

    Attributes:
        factor: growth of the data between two stages; None trains at random ticks.
        wait: mean number of mega-batches between two stages at random ticks.
        last: tick of the last stage.
        replay: share of the stages with replay.
        restart: share of the stages that restart.
        growth: share of the stages with growth.
        passes: limit of the training, in mega-batches for each that has arrived, beyond which no stage replays.
    """

    factor: float | None
    wait: float
    last: int
    replay: float
    restart: float
    growth: float
    passes: float

    @classmethod
    def of_run(cls, seed: int, ticks: int) -> Habits:
        """Draw the habits of the run with this seed on a stream of this length."""
        draw = np.random.default_rng([seed])
        return cls(
            factor=_log_uniform(draw, *FACTORS) if draw.random() < 0.5 else None,
            wait=_log_uniform(draw, 1, max(ticks / 3, 1)),
            last=max(int(ticks * draw.uniform(0.2, 1)), 1) if draw.random() < 0.5 else ticks,
            replay=float(draw.choice(REPLAY)),
            restart=float(draw.choice(RESTART)),
            growth=float(draw.choice(GROWTH)),
            passes=_log_uniform(draw, 1, PASSES),
        )


def _log_uniform(draw: np.random.Generator, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


@dataclass(frozen=True)
class Exploring:
    """Train at random ticks, at random with replay, from scratch, or after growth; stop at a random tick.

    The seed decides how often the run does each of them, see `Habits`. The numbers drawn at a tick depend on seed and
    tick only. Half of the runs train in geometric steps, and half of them stop before the end of the stream.

    Attributes:
        seed: 0 or more.
        grows: whether the learner can grow.

    Raises:
        ValueError: the seed is not a whole number, or negative.
    """

    seed: int = 0
    grows: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_types({"seed": self.seed}, {"seed": int}, {"seed": 0})["seed"])
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more; use seed=0")

    def as_plain_data(self) -> dict[str, Any]:
        """Return the record of this policy."""
        return {"name": "exploring", "seed": self.seed, "grows": self.grows}

    def __call__(self, now: Progress, /) -> Decision:
        """Draw the decision of this tick."""
        habits = Habits.of_run(self.seed, now.ticks)
        draw = np.random.default_rng([self.seed, now.tick])
        before = now.tick - now.pending  # tick of the last stage
        due = draw.random() < 1 / habits.wait if habits.factor is None else now.tick >= habits.factor * before
        if now.tick > habits.last or not (due or now.tick == habits.last):
            return Decision(train=False)
        if not before:  # there is nothing to repeat or to forget
            return Decision(train=True)
        window = int(_log_uniform(draw, 1, before)) if draw.random() < WINDOW else None
        size = megabatches_of(now.tick, now.pending, replay=True, window=window)
        replay = draw.random() < habits.replay and now.processed + size <= habits.passes * now.tick
        grow = draw.random() < habits.growth and self.grows
        restart = draw.random() < habits.restart
        return Decision(True, replay, grow, window if replay else None, restart)
