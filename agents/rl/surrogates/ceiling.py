"""The ceiling: what good decisions could cost on a surrogate, if the exact error and the quality are seen.

Dynamic programming goes backwards through the stream. After a training, the remaining cost depends on the tick, the
logit of the error, the quality of the network, the number of trainings, and the mega-batches since the last restart.
The logarithm of the lowest cost is tabulated on a grid of these five numbers, between which it is interpolated
linearly; the residuals of a training are represented by means of a few equal parts.

The decisions are those of a class: the next training is when the data has grown by one of `FACTORS`, at a tick of a
grid whose ticks are about `_STEP` apart, on the gathered mega-batches, a tenth of the stream more, or everything, from
new weights or not; or never. Their cost in a simulation can be reached. The tabulated cost is an estimate, usually too
low, because the lowest cost is a minimum that is interpolated. A real policy sees neither the exact error nor the
quality.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from agents.policies.choices import megabatches_with
from agents.policies.learned_schedule import ScheduleNetwork
from agents.policies.next_training import REPLAYS
from agents.policies.progress import Progress
from agents.policies.waiting import RULE
from agents.rl.models.regression import Array, logistic, logit
from agents.rl.models.stacked_models import StackedModels
from agents.rl.models.training_model import TrainingModel, Trainings
from agents.rl.surrogates.next_training_env import Learners, NextTrainings, NextTrainingVectorEnv

FACTORS = (1.1, 1.25, 1.4, 1.6, 2.0, 2.5, 3.5, 5.0, 8.0)  # growth of the data until the next training
_STEP = 1.1  # between two ticks of the grid, at least one tick
_LOGITS, _QUALITIES, _STAGES, _PROCESSED = 48, 7, 5, 10  # points of the grid
_RESIDUALS = 8  # parts of the residuals of a pool


class Ceiling:
    """The best decisions of the class for one model at one price of a full pass.

    Args:
        model: fitted model of trainings, with replay and restarts, of a learner that does not grow.
        pass_price: errors that a full pass costs.

    Attributes:
        ticks: ticks at which it trains, about `_STEP` apart.

    Raises:
        ValueError: the learner grows, or no replay or restart was recorded.
    """

    def __init__(self, model: TrainingModel, pass_price: float) -> None:
        if model.grows or not (model.replays and model.restarts):
            raise ValueError(
                f"replays={model.replays}, restarts={model.restarts}, grows={model.grows}: the ceiling has decisions "
                "about replay and restarts, and none about growth; record runs of a learner that does not grow with "
                "`alma surrogate record`, exploring runs among them"
            )
        self.model, self.pass_price = model, pass_price
        self._stacked = StackedModels([model])
        self._residuals = {True: _means_of_parts(model.cold_residuals), False: _means_of_parts(model.warm_residuals)}
        self.ticks = list(_ticks(model.ticks))
        nodes, weights = np.polynomial.hermite_e.hermegauss(_QUALITIES)
        most = np.log1p(model.ticks), np.log1p(model.ticks * (model.ticks + 1) / 2)
        self._axes = [
            np.linspace(model.low, model.high, _LOGITS),
            nodes * model.quality,  # so that a new network is on the grid, and stays there
            np.linspace(np.log(2), most[0], _STAGES),
            np.linspace(np.log(2), most[1], _PROCESSED),
        ]
        self._weights = weights / weights.sum()
        self._tables: dict[int, Array] = {}
        logits, quality, stages, processed = (axis.ravel() for axis in np.meshgrid(*self._axes, indexing="ij"))
        shape = [len(axis) for axis in self._axes]
        for tick in reversed(self.ticks):
            at = np.full(len(logits), tick)
            _, costs = self.decide(Learners(at, logits, quality, np.expm1(stages), np.expm1(processed)))
            self._tables[tick] = np.log(logistic(logits) + costs).reshape(shape)

    @property
    def estimate(self) -> float:
        """Expected cost of ticks 1..B by the table, in errors: usually too low."""
        errors, none = self.model.first_errors, np.zeros(len(self.model.first_errors), np.int64)
        _, costs = self.decide(Learners(none, logit(errors), none.astype(np.float64), none, none))
        return float(costs.mean())

    def decide(self, learners: Learners) -> tuple[NextTrainings, Array]:
        """Return the best next trainings of learners at one tick, and what they are expected to cost.

        Args:
            learners: n learners, at the same tick: 0 or one of `ticks`.

        Returns:
            The trainings, and the costs of the ticks after the learners' tick, float64 (n,), in errors.
        """
        now = int(learners.tick[0])
        error = logistic(learners.logit)
        choices: list[tuple[float, str, bool]] = [(np.inf, REPLAYS[0], False)]
        costs = [error * (self.model.ticks - now)]
        for tick, replay, restart in self._choices(now):
            size = int(megabatches_with(replay, tick, tick - now, self.model.ticks))
            spent = self._stacked.flops(np.zeros(1, np.int64), np.array([size]), np.zeros(1, np.int64))
            paid = self.pass_price * float(spent[0]) / self.model.pass_flops
            outcome = self._cold if restart or now == 0 else self._warm
            choices.append((tick, replay, restart))
            costs.append(error * (tick - now - 1) + paid + outcome(learners, tick, size))
        table = np.stack(costs)
        ticks, replays, restarts = (np.array(values)[table.argmin(0)] for values in zip(*choices, strict=True))
        return NextTrainings(ticks, replays, restarts, np.zeros(len(error), np.bool_)), table.min(0)

    def _choices(self, now: int) -> Iterator[tuple[int, str, bool]]:
        later = [tick for tick in self.ticks if tick > now]
        if not now:  # the first training is always on everything, from new weights
            yield from ((tick, REPLAYS[0], False) for tick in later)
            return
        due = [round(factor * now, 9) for factor in FACTORS]  # 1.1 · 90 is 99, although the product of floats is not
        ticks = {tick for least in due for tick in [t for t in later if t >= least][:1]}
        yield from itertools.product(sorted(ticks), REPLAYS, (False, True))

    def _warm(self, learners: Learners, tick: int, size: int) -> Array:
        """Return the expected costs from this tick on, after a training that continues, float64 (n,)."""
        after, pool = self._expected(learners, tick, size, cold=False)
        after = (after + learners.quality)[:, None] + self._residuals[False][pool]  # (n, residuals)
        state = learners.quality, learners.stages + 1, learners.processed + size
        return np.asarray(self._value(tick, after, *(values[:, None] for values in state)).mean(1))

    def _cold(self, learners: Learners, tick: int, size: int) -> Array:
        """Return the expected costs from this tick on, after a training from new weights, float64 (n,).

        It depends on the number of trainings only.
        """
        after, pool = self._expected(learners.of(slice(1)), tick, size, cold=True)
        logits = (after + self._residuals[True][pool[0]])[:, None]  # (residuals, 1)
        qualities = self._axes[1]
        stages = np.concatenate([[0.0], self._axes[2]])  # ln(1 + trainings before), from the first training on
        means = [
            float((self._value(tick, logits, qualities, np.exp(before), float(size)) @ self._weights).mean())
            for before in stages
        ]
        return np.asarray(np.interp(np.log1p(learners.stages), stages, means))

    def _expected(self, learners: Learners, tick: int, size: int, *, cold: bool) -> tuple[Array, NDArray[np.int64]]:
        n, none = len(learners.tick), np.zeros(len(learners.tick))
        trainings = Trainings(
            last=learners.logit,
            size=np.full(n, float(size)),
            tick=np.full(n, float(tick)),
            pending=tick - learners.tick,
            stages=learners.stages,
            processed=learners.processed,
            grown=none,
            grows=none,
        )
        return self._stacked.expected(np.zeros(n, np.int64), trainings, np.full(n, cold))

    def _value(self, tick: int, logit: Array, quality: Any, stages: Any, processed: Any) -> Array:
        """Return error of the tick plus the cost after it; the arguments are broadcast."""
        logit = np.clip(logit, self.model.low, self.model.high)
        state = np.broadcast_arrays(logit, quality, np.log1p(stages), np.log1p(processed))
        places = [np.interp(x, axis, range(len(axis))) for x, axis in zip(state, self._axes, strict=True)]
        return np.asarray(np.exp(map_coordinates(self._tables[tick], places, order=1, mode="nearest")))


Choose = Callable[[NextTrainingVectorEnv, NDArray[np.float32]], NextTrainings]


def episode_costs(model: TrainingModel, pass_price: float, choose: Choose, episodes: int) -> Array:
    """Return what each of some simulated episodes costs, float64 (episodes,), in errors.

    Args:
        model: fitted model of trainings.
        pass_price: errors that a full pass costs.
        choose: returns the next trainings for the environment and its observations.
        episodes: number of episodes.
    """
    env = NextTrainingVectorEnv(episodes, [model], pass_price=pass_price)
    observations, _ = env.reset(seed=0)
    costs, over = np.zeros(episodes), np.zeros(episodes, bool)
    while not over.all():
        observations, _, ended, _, infos = env.train_at(choose(env, observations))
        errors, passes, _ = -infos["vector_reward"].T
        costs += ~over * (errors + pass_price * passes)  # an episode that is over starts again, and counts no more
        over |= ended
    return costs


def by_schedule(network: ScheduleNetwork) -> Choose:
    """Return the decisions of `LearnedSchedule` in the form of `episode_costs`; prices must be those of the network."""

    def choose(env: NextTrainingVectorEnv, observations: NDArray[np.float32]) -> NextTrainings:
        last = env.learners.tick
        chosen = NextTrainings.of(network.menu, network.decide(observations), last, env.ticks)
        # `LearnedSchedule` asks the rule at the only tick of a stream with one mega-batch, too.
        for row in np.flatnonzero(~network.known.contain(observations) | (env.ticks == 1)):
            chosen.tick[row], chosen.replay[row], chosen.restart[row] = _next_by_rule(int(last[row]), env.ticks)
        return chosen

    return choose


def _next_by_rule(last: int, ticks: int) -> tuple[float, str, bool]:
    """Return tick, replay and restart of the next training of `RULE`."""
    for tick in range(last + 1, ticks + 1):
        if RULE(Progress(tick, ticks, tick - last, stages=int(last > 0))).train:
            return tick, REPLAYS[0], False
    return np.inf, REPLAYS[0], False


def by_ceiling(ceiling: Ceiling) -> Choose:
    """Return the best decisions of the ceiling's class in the form of `episode_costs`."""

    def choose(env: NextTrainingVectorEnv, _: NDArray[np.float32]) -> NextTrainings:
        learners = env.learners
        count = len(learners.tick)
        chosen = NextTrainings(np.zeros(count), np.zeros(count, "U4"), *np.zeros((2, count), np.bool_))
        for tick in np.unique(learners.tick):
            rows = learners.tick == tick
            best, _costs = ceiling.decide(learners.of(rows))
            chosen.tick[rows], chosen.replay[rows], chosen.restart[rows] = best.tick, best.replay, best.restart
        return chosen

    return choose


def _means_of_parts(residuals: Array) -> Array:
    """Return means of equal parts of each pool's sorted residuals of the logit, float64 (pools, `_RESIDUALS`)."""
    ordered = np.sort(residuals[..., 0], 1)
    return np.asarray(ordered.reshape(len(ordered), _RESIDUALS, -1).mean(2))


def _ticks(last: int) -> Iterator[int]:
    tick = 1
    while tick < last:
        yield tick
        tick = max(tick + 1, round(tick * _STEP))
    yield last
