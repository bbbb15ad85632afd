"""Runs that try what a policy could do: random decisions whose frequencies differ from run to run.

A surrogate learns from such runs what each decision does, also at moments at which no sensible schedule makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.policies.progress import Decision, Progress, megabatches_of
from agents.policies.validation import check_types

REPLAY = (0.0, 0.3, 0.7, 1.0)  # shares of the stages with replay, of which each run has one
RESTART = (0.0, 0.0, 0.1, 0.5)  # shares of the stages that restart
WINDOW = 0.5  # share of the replays that repeat a part of the earlier mega-batches
GROWTH = (0.0, 0.3, 1.0)  # shares of the stages with growth
PASSES = 8  # a run trains on each mega-batch at most so many times on average


@dataclass(frozen=True)
class Exploring:
    """Train at random ticks, at random with replay, from scratch, or after growth; stop at a random tick.

    The seed alone decides how often the run does each of them. The times of the stages are geometric in half of the
    runs, with a factor from 1.1 to 4, and at random ticks in the other half, with a mean wait from 1 mega-batch to a
    third of the stream. Half of the runs stop before the end. A run spends from 1 to `PASSES` passes over the stream: a
    stage does not replay if that exceeds the passes so far. The numbers drawn at a tick depend on seed and tick only.

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
        run = np.random.default_rng([self.seed])
        geometric, stops = run.random(2) < 0.5
        factor, wait = np.exp(run.uniform(0, np.log([4 / 1.1, max(now.ticks / 3, 1)]))) * [1.1, 1]
        last = max(int(now.ticks * (run.uniform(0.2, 1) if stops else 1)), 1)
        replay, restart, growth = (run.choice(shares) for shares in (REPLAY, RESTART, GROWTH))
        effort = np.exp(run.uniform(0, np.log(PASSES))) * now.tick - now.processed

        drawn = np.random.default_rng([self.seed, now.tick])
        before = now.tick - now.pending
        due = now.tick >= factor * before if geometric else drawn.random() < 1 / wait
        if now.tick != last and (now.tick > last or not due):
            return Decision(train=False)
        repeats, restarts, grows, part = drawn.random(4) < [replay, restart, growth, WINDOW]
        if not before:  # there is nothing to repeat or to forget
            return Decision(True)
        window = int(np.exp(drawn.uniform(0, np.log(before)))) if repeats and part else None
        repeats &= megabatches_of(now.tick, now.pending, replay=True, window=window) <= effort
        window = window if repeats else None
        return Decision(True, bool(repeats), int(grows) if self.grows else 0, window, bool(restarts))
