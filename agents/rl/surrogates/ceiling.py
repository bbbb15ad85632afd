"""The ceiling: what good decisions could cost on a surrogate, if the exact error and the quality are seen.

Dynamic programming goes backwards through the stream. After a training, the remaining cost depends on the tick, the
logit of the error, the quality of the network, the number of trainings, the mega-batches since the last restart, and
the growth steps. The logarithm of the lowest cost is tabulated on a grid of these six numbers, between which it is
interpolated linearly; the residuals of a training are represented by means of a few equal parts.

The decisions are those of a class: the next training is when the data has grown by one of `FACTORS`, at a tick of a
grid whose ticks are about `_STEP` apart, on the gathered mega-batches, a tenth of the stream more, or everything, from
new weights, or after growth, or neither; or never. Their cost in a simulation can be reached. The tabulated cost is an
estimate, usually too low, because the lowest cost is a minimum that is interpolated. A real policy sees neither the
exact error nor the quality.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from agents.policies.choices import megabatches_with
from agents.policies.learned.next_training import REPLAYS
from agents.policies.learned.schedule import ScheduleNetwork
from agents.policies.progress import Progress
from agents.policies.waiting import RULE
from agents.rl.models.regression import Array, logistic, logit
from agents.rl.models.stacked_models import StackedModels
from agents.rl.models.training_model import TrainingModel, Trainings, require_all_decisions, residual_unit
from agents.rl.surrogates.next_training_env import Learners, NextTrainings, NextTrainingVectorEnv

FACTORS = (1.1, 1.25, 1.4, 1.6, 2.0, 2.5, 3.5, 5.0, 8.0)  # growth of the data until the next training
_STEP = 1.1  # between two ticks of the grid, at least one tick
# Points of the grid for logit, quality, trainings, mega-batches and growth steps of a learner that grows, or does not.
_POINTS = {True: (24, 5, 4, 6, 6), False: (48, 7, 5, 10, 1)}
_RESIDUALS = 8  # parts of the residuals of a pool


class Ceiling:
    """The best decisions of the class for one model at one price of a full pass, and one of memory.

    Args:
        model: fitted model of trainings, with replay and restarts.
        pass_price: errors that a full pass costs.
        memory_price: errors per tick that the size of the untrained predictor costs.

    Attributes:
        ticks: ticks at which it trains, about `_STEP` apart.

    Raises:
        ValueError: no replay or restart was recorded.
    """

    def __init__(self, model: TrainingModel, pass_price: float, memory_price: float = 0.0) -> None:
        require_all_decisions([model])
        self.model, self.pass_price, self.memory_price = model, pass_price, memory_price
        self._stacked = StackedModels([model])
        self._residuals = {True: _means_of_parts(model.cold_residuals), False: _means_of_parts(model.warm_residuals)}
        self.ticks = list(_ticks(model.ticks))
        logits, qualities, numbers, sizes, growths = _POINTS[model.grows]
        nodes, weights = np.polynomial.hermite_e.hermegauss(qualities)
        most = np.log1p(model.ticks), np.log1p(model.ticks * (model.ticks + 1) / 2)
        self._axes = [
            np.linspace(model.low, model.high, logits),
            nodes * model.quality,  # so that a new network is on the grid, and stays there
            np.linspace(np.log(2), most[0], numbers),
            np.linspace(np.log(2), most[1], sizes),
        ]
        if model.grows:
            self._axes.append(np.unique(np.geomspace(1, len(self.ticks), growths).round()) - 1)
        self._weights = weights / weights.sum()
        self._tables: dict[int, Array] = {}
        last, quality, trained, processed, *steps = (axis.ravel() for axis in np.meshgrid(*self._axes, indexing="ij"))
        grew = steps[0].astype(np.int64) if model.grows else np.zeros(len(last), np.int64)
        shape = [len(axis) for axis in self._axes]
        for tick in reversed(self.ticks):
            at = np.full(len(last), tick)
            learners = Learners(at, last, quality, np.expm1(trained), np.expm1(processed), grew)
            _, costs = self.decide(learners)
            self._tables[tick] = np.log(self._each_tick(learners) + costs).reshape(shape)

    @property
    def estimate(self) -> float:
        """Expected cost of ticks 1..B by the table, in errors: usually too low."""
        errors, none = self.model.first_errors, np.zeros(len(self.model.first_errors), np.int64)
        _, costs = self.decide(Learners(none, logit(errors), none.astype(np.float64), none, none, none))
        return float(costs.mean())

    def decide(self, learners: Learners) -> tuple[NextTrainings, Array]:
        """Return the best next trainings of learners at one tick, and what they are expected to cost.

        Args:
            learners: n learners, at the same tick: 0 or one of `ticks`.

        Returns:
            The trainings, and the costs of the ticks after the learners' tick, float64 (n,), in errors.
        """
        now, none = int(learners.tick[0]), np.zeros(len(learners.tick), np.int64)
        each_tick = self._each_tick(learners)
        choices: list[tuple[float, str, bool, bool]] = [(np.inf, REPLAYS[0], False, False)]
        costs = [each_tick * (self.model.ticks - now)]
        for tick, replay, restart, grow in self._choices(now):
            size = int(megabatches_with(replay, tick, tick - now, self.model.ticks))
            spent = self._stacked.flops(none, np.full(len(none), size), learners.grown + grow)
            paid = self.pass_price * spent / self.model.pass_flops
            if restart or now == 0:
                outcome = self._cold(learners, tick, size)
            else:
                outcome = self._warm(learners, tick, size, int(grow))
            choices.append((tick, replay, restart, grow))
            costs.append(each_tick * (tick - now - 1) + paid + outcome)
        table = np.stack(costs)
        chosen = (np.array(values)[table.argmin(0)] for values in zip(*choices, strict=True))
        return NextTrainings(*chosen), table.min(0)

    def _choices(self, now: int) -> Iterator[tuple[int, str, bool, bool]]:
        later = [tick for tick in self.ticks if tick > now]
        if not now:  # the first training is always on everything, from new weights, without growth
            yield from ((tick, REPLAYS[0], False, False) for tick in later)
            return
        due = [round(factor * now, 9) for factor in FACTORS]  # 1.1 · 90 is 99, although the product of floats is not
        ticks = {tick for least in due for tick in [t for t in later if t >= least][:1]}
        for tick, replay in itertools.product(sorted(ticks), REPLAYS):
            yield from ((tick, replay, restart, False) for restart in (False, True))
            if self.model.grows:
                yield tick, replay, False, True

    def _each_tick(self, learners: Learners) -> Array:
        """Return error and price of memory of one tick, float64 (n,)."""
        none = np.zeros(len(learners.tick), np.int64)
        size = self._stacked.parameters(none, learners.grown) / self._stacked.parameters(none)
        return np.asarray(logistic(learners.logit) + self.memory_price * size)

    def _warm(self, learners: Learners, tick: int, size: int, grow: int) -> Array:
        """Return the expected costs from this tick on, after a training that continues, float64 (n,)."""
        after, pool = self._expected(learners, tick, size, grow)
        unit = residual_unit(size, self.model.warm_power)
        after = (after + learners.quality)[:, None] + unit * self._residuals[False][pool]  # (n, residuals)
        state = learners.quality, learners.trained + 1, learners.processed + size, learners.grown + grow
        return np.asarray(self._value(tick, after, *(values[:, None] for values in state)).mean(1))

    def _cold(self, learners: Learners, tick: int, size: int) -> Array:
        """Return the expected costs from this tick on, after a training from new weights, float64 (n,).

        It depends on the number of growth steps, and after growth also on the error before.
        """
        qualities = self._axes[1]
        costs = np.empty(len(learners.tick))
        for grown in np.unique(learners.grown):
            same = np.flatnonzero(learners.grown == grown)
            before = self._axes[0] if grown else self._axes[0][:1]  # without growth, each gives the same
            grid = replace(learners.of(np.resize(same[:1], len(before))), logit=before)
            after, pool = self._expected(grid, tick, size, cold=True)
            logits = (after[:, None] + self._residuals[True][pool])[..., None]  # (before, residuals, 1)
            each = self._value(tick, logits, qualities, 1, size, grown)
            means = (each @ self._weights).mean(-1)  # over qualities and residuals: (before,)
            costs[same] = np.interp(learners.logit[same], before, means)
        return costs

    def _expected(
        self, learners: Learners, tick: int, size: int, grow: int = 0, *, cold: bool = False
    ) -> tuple[Array, NDArray[np.int64]]:
        n = len(learners.tick)
        trainings = Trainings(
            last=learners.logit,
            size=np.full(n, float(size)),
            tick=np.full(n, float(tick)),
            pending=tick - learners.tick,
            trained=learners.trained,
            processed=learners.processed,
            grown=learners.grown + grow,
            grows=np.full(n, grow),
        )
        return self._stacked.expected(np.zeros(n, np.int64), trainings, np.full(n, cold))

    def _value(self, tick: int, logit: Array, quality: Any, trained: Any, processed: Any, grown: Any) -> Array:
        """Return the cost of the tick plus that of the ticks after it; the arguments are broadcast."""
        logit = np.clip(logit, self.model.low, self.model.high)
        numbers = (logit, quality, np.log1p(trained), np.log1p(processed), grown)
        state = np.broadcast_arrays(*numbers[: len(self._axes)])
        places = [np.interp(x, axis, range(len(axis))) for x, axis in zip(state, self._axes, strict=True)]
        return np.asarray(np.exp(map_coordinates(self._tables[tick], places, order=1, mode="nearest")))


Choose = Callable[[NextTrainingVectorEnv, NDArray[np.float32]], NextTrainings]


def episode_costs(model: TrainingModel, pass_price: float, memory_price: float, choose: Choose, episodes: int) -> Array:
    """Return what each of some simulated episodes costs, float64 (episodes,), in errors.

    Args:
        model: fitted model of trainings.
        pass_price: errors that a full pass costs.
        memory_price: errors per tick that the size of the untrained predictor costs.
        choose: returns the next trainings for the environment and its observations.
        episodes: number of episodes.
    """
    env = NextTrainingVectorEnv(episodes, [model], pass_price=pass_price, memory_price=memory_price)
    observations, _ = env.reset(seed=0)
    costs, over = np.zeros(episodes), np.zeros(episodes, bool)
    while not over.all():
        observations, _, ended, _, infos = env.train_at(choose(env, observations))
        errors, passes, sizes = -infos["vector_reward"].T
        paid = pass_price * passes + memory_price * sizes
        costs += ~over * (errors + paid)  # an episode that is over starts again, and counts no more
        over |= ended
    return costs


def by_schedule(network: ScheduleNetwork) -> Choose:
    """Return the decisions of `LearnedSchedule` in the form of `episode_costs`; prices must be those of the network."""

    def choose(env: NextTrainingVectorEnv, observations: NDArray[np.float32]) -> NextTrainings:
        last = env.learners.tick
        chosen = NextTrainings.of(network.menu, network.decide(observations), last, env.ticks)
        # `LearnedSchedule` asks the rule at the only tick of a stream with one mega-batch, too.
        for row in np.flatnonzero(~network.known.contain(observations) | (env.ticks == 1)):
            chosen.tick[row] = _next_by_rule(int(last[row]), env.ticks)
            chosen.replay[row], chosen.restart[row], chosen.grow[row] = REPLAYS[0], False, True
        return chosen

    return choose


def _next_by_rule(last: int, ticks: int) -> float:
    """Return the tick of the next training of `RULE`."""
    for tick in range(last + 1, ticks + 1):
        if RULE(Progress(tick, ticks, tick - last, stages=int(last > 0))).train:
            return tick
    return np.inf


def by_ceiling(ceiling: Ceiling) -> Choose:
    """Return the best decisions of the ceiling's class in the form of `episode_costs`."""

    def choose(env: NextTrainingVectorEnv, _: NDArray[np.float32]) -> NextTrainings:
        learners = env.learners
        count = len(learners.tick)
        chosen = NextTrainings(np.zeros(count), np.zeros(count, "U4"), *np.zeros((2, count), np.bool_))
        for tick in np.unique(learners.tick):
            rows = learners.tick == tick
            best, _costs = ceiling.decide(learners.of(rows))
            for name, values in vars(best).items():
                getattr(chosen, name)[rows] = values
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
