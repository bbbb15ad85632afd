"""Tuning of schedules on the second surrogate: which rule costs least at given prices.

Schedules do not see what happens, so each is simulated once, and its outcome has a cost at every price.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.policies.choices import window
from agents.policies.progress import Policy, Progress, decision_of, megabatches_of
from agents.policies.specs import policy_from, spec_of
from agents.policies.waiting import FixedWait, Geometric
from agents.rl.models.training_model import TrainingModel
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv

FACTORS = (1.2, 1.4, 1.6, 2.0, 3.0, 5.0)
STOPS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.0)
RESTARTS = (0.1, 0.3, 1.0)  # shares of the stream within which trainings on everything restart
GROWTH = ("every", "every:2", "every:4", "never")  # for a learner that can grow, in the place of restarts
_BLIND = (FixedWait, Geometric)  # schedules that see the ticks only; doubling is a geometric one
WAIT_SHARES = (500, 250, 100, 50, 20, 10, 4, 2)  # of the stream


@dataclass(frozen=True)
class Outcome:
    """The simulated episodes of one schedule.

    Attributes:
        schedule: in the shortest form of ``--policy``.
        cer: cumulative error rate of ticks 1..B, float64 (episodes,).
        passes: full passes, float64 (episodes,).
        size: sum over the ticks of the parameters, divided by those of the untrained predictor, float64 (episodes,).
    """

    schedule: str
    cer: NDArray[np.float64]
    passes: NDArray[np.float64]
    size: NDArray[np.float64]

    def costs(self, pass_price: float, memory_price: float = 0.0) -> NDArray[np.float64]:
        """Return the cost of each episode in errors, float64 (episodes,)."""
        return self.cer + pass_price * self.passes + memory_price * self.size


def candidates(ticks: int, *, replays: bool, restarts: bool = False, grows: bool = False) -> list[str]:
    """Return the schedules to choose from: geometric and fixed waits, with and without replay and an early stop.

    Args:
        ticks: length of the stream, B.
        replays: whether schedules with replay are among them.
        restarts: whether schedules that restart are among them, if `replays`: these replay everything.
        grows: whether the learner can grow; then the schedules differ in growth, and none restarts.
    """
    kinds = ["none", f"last:{window(ticks)}", "all"] if replays else ["none"]
    if grows:
        kinds = [f"{kind},growth={growth}" for kind, growth in itertools.product(kinds, GROWTH)]
    elif replays and restarts:
        kinds += [f"all,restart={share}" for share in RESTARTS]
    rules = [f"geometric:factor={factor}" for factor in FACTORS]
    rules += [f"fixed:wait={wait}" for wait in sorted({max(ticks // share, 1) for share in WAIT_SHARES})]
    return [f"{rule},replay={kind},stop={stop}" for rule, kind, stop in itertools.product(rules, kinds, STOPS)]


def simulate(models: Sequence[TrainingModel], schedule: str, episodes: int, seed: int = 0) -> Outcome:
    """Simulate a schedule; it grows learners that can grow at every stage, unless it says otherwise.

    Raises:
        ValueError: the schedule is unknown, or it depends on losses, FLOPs or chance; or it replays or restarts, and a
            model was fitted to runs without replay or without restarts.
    """
    grows = any(model.grows for model in models)
    policy = policy_from(schedule, option="", grows=grows)
    if not isinstance(policy, _BLIND) or policy.growth.startswith("stall"):
        raise ValueError(
            f"schedule={schedule!r}: must depend on the ticks only, because one simulation makes its decisions for all "
            "episodes; use fixed, geometric or doubling, without growth=stall"
        )
    for name in ("replays", "restarts"):
        if getattr(policy, name.removesuffix("s")) and not all(getattr(model, name) for model in models):
            raise ValueError(
                f"schedule={schedule!r}: it {name}, and a model was fitted to runs in which no training {name}; record "
                "such runs with `alma surrogate record`, or give another schedule"
            )
    env = DecisionSurrogateVectorEnv(episodes, models=models)
    env.reset(seed=seed)
    totals = np.zeros((episodes, 3))
    waited = 0
    for tick, decision in enumerate(_decisions(policy, env.ticks), start=1):
        if not decision[0] and tick < env.ticks:
            waited += 1
            continue
        totals -= env.wait(waited)
        waited = 0
        *_, infos = env.decide(*(np.full(episodes, value) for value in decision))
        totals -= infos["vector_reward"]
    return Outcome(spec_of(policy, usual_growth="every" if grows else "never"), *totals.T)


def _decisions(policy: Policy, ticks: int) -> Iterator[tuple[bool, int, bool, int]]:
    """Yield (train, mega-batches, restart, growth steps) of each tick."""
    pending = stages = last = processed = 0
    for tick in range(1, ticks + 1):
        pending += 1
        now = Progress(tick, ticks, pending, stages, last_pending=last, processed=processed)
        decision = decision_of(policy, now)
        size = megabatches_of(tick, pending, replay=decision.replay, window=decision.window)
        yield decision.train, size, decision.restart, decision.grow
        if decision.train:
            stages, last, processed, pending = stages + 1, pending, processed + size, 0
