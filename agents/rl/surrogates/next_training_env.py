"""The second surrogate with one step per training: a decision says when and how to train next.

A policy that decides at every tick explores hundreds of waits for each training, and at a price it first learns to
train rarely. Here an episode has about ten steps, which need no discount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agents.policies.choices import megabatches_with
from agents.policies.learned.next_training import REPLAYS, WITH_GROWTH, WITHOUT_GROWTH, Menu
from agents.rl.models.training_model import TrainingModel, require_all_decisions
from agents.rl.surrogates.checks import checked_fits
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.episodes import Observations
from agents.rl.surrogates.reference_costs import ReferenceCosts


@dataclass(frozen=True)
class Learners:
    """Learners directly after a training; arrays (n,).

    Attributes:
        tick: tick of the training, int64; 0 before the first.
        logit: of the error, float64.
        quality: of the network, float64, see `agents.rl.models.training_model`.
        trained: trainings since the last restart, with it.
        processed: mega-batches of these trainings.
        grown: growth steps so far, int64.
    """

    tick: NDArray[np.int64]
    logit: NDArray[np.float64]
    quality: NDArray[np.float64]
    trained: NDArray[Any]
    processed: NDArray[Any]
    grown: NDArray[np.int64]

    def of(self, rows: Any) -> Learners:
        """Return some of the learners."""
        return Learners(*(values[rows] for values in vars(self).values()))


@dataclass(frozen=True)
class NextTrainings:
    """The next trainings of n learners; arrays (n,).

    Attributes:
        tick: of the training, float64; infinite for none.
        replay: one of `agents.policies.learned.next_training.REPLAYS`.
        restart: whether it starts from a new random initialisation, bool.
        grow: whether the learner grows before it, bool; without effect on a learner that cannot grow, and before the
            first training.
    """

    tick: NDArray[np.float64]
    replay: NDArray[Any]
    restart: NDArray[np.bool_]
    grow: NDArray[np.bool_]

    @classmethod
    def of(cls, menu: Menu, decisions: Any, last: NDArray[np.int64], ticks: int) -> NextTrainings:
        """Return what decisions mean.

        Args:
            menu: the decisions between which was chosen.
            decisions: their numbers, int (n,).
            last: tick of the last training, (n,); 0 before the first.
            ticks: number of mega-batches in each stream.
        """
        decisions = np.asarray(decisions)
        replay = np.array([*(one.replay for one in menu.trainings), "none"])
        restart, grow = (
            np.array([*(getattr(one, name) for one in menu.trainings), False]) for name in ("restart", "grow")
        )
        return cls(menu.next_ticks(decisions, last, ticks), replay[decisions], restart[decisions], grow[decisions])


class NextTrainingVectorEnv(DecisionSurrogateVectorEnv):
    """Many episodes of `DecisionSurrogateVectorEnv`, each of whose steps goes on to the next training.

    * **Actions**: integers, numbers of the decisions of ``menu``; to train no more ends the episode, and so does a
      later training that would be after the last tick. A first training that would be after it is at the last tick.
    * **Observations**: those of `DecisionEnv`, float32 (18,), at the tick of the last training with nothing gathered.
    * **Rewards**: those of `DecisionEnv`, summed over the ticks of the step, and divided by what the best of a few
      simple schedules costs in the whole episode at its prices. Cheap and dear episodes thus weigh the same.

    Args:
        num_envs: number of episodes.
        models: fitted models of trainings on streams of equal length.
        pass_price: errors that a full pass costs, or a range from which each episode draws.
        memory_price: errors per tick that the untrained size costs, or a range.
        menu: the decisions, see `agents.policies.learned.next_training`; by default with growth if a learner can grow.
        dead: as in `DecisionSurrogateVectorEnv`.

    Raises:
        ValueError: no models, streams of different lengths, wrong prices, or a model that was fitted to runs without
            replay or without restarts.
    """

    def __init__(
        self,
        num_envs: int,
        models: Sequence[TrainingModel],
        *,
        pass_price: float | tuple[float, float] = 0.0,
        memory_price: float | tuple[float, float] = 0.0,
        menu: Menu | None = None,
        dead: float = 0.0,
    ) -> None:
        models = checked_fits("models", models, TrainingModel, "agents.rl.models.training_fit.models_for(STREAM)")
        require_all_decisions(models)
        super().__init__(num_envs, models=models, pass_price=pass_price, memory_price=memory_price, dead=dead)
        self.menu = menu or (WITH_GROWTH if any(model.grows for model in models) else WITHOUT_GROWTH)
        self.single_action_space = cast("gym.Space[Any]", spaces.Discrete(self.menu.stop + 1))
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @cached_property
    def _references(self) -> ReferenceCosts:
        return ReferenceCosts.of(self.models)

    def _start(self, rows: NDArray[np.int64]) -> None:
        """Start episodes before D_1 arrives."""
        super()._start(rows)
        self._tick[rows] = self._pending[rows] = 0

    def step(self, actions: Any) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Go on to the next training of every episode.

        Args:
            actions: integers (n,).

        Raises:
            RuntimeError: ``reset`` was not called.
            ValueError: the actions are of another shape, or not in the space.
        """
        decisions = self._checked(actions)
        scale = self._references(self._curve, *self._prices)  # of these episodes; those that end get new prices
        trainings = NextTrainings.of(self.menu, decisions, self._tick, self.ticks)
        observations, rewards, ended, cut, infos = self.train_at(trainings)
        return observations, rewards / scale, ended, cut, infos

    def train_at(
        self, trainings: NextTrainings
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Do a `step` with any trainings instead of numbered decisions; the rewards are not divided.

        Raises:
            RuntimeError: ``reset`` was not called.
            ValueError: the trainings are not as many as the episodes, or one is not after the last training, is at no
                whole tick, or has an unknown replay.
        """
        self._require_episodes()
        restart, grow = (np.asarray(one, bool) for one in (trainings.restart, trainings.grow))
        for values in (trainings.tick, trainings.replay, restart, grow):
            if np.shape(values) != (self.num_envs,):
                raise ValueError(f"{np.size(values)} next trainings: must be one for each of {self.num_envs} episodes")
        last = self._tick.copy()
        if not (late := trainings.tick > last).all():
            early = int(late.argmin())
            raise ValueError(
                f"tick={trainings.tick[early]:g} of episode {early}: the next training must be after the last one, at "
                f"tick {last[early]}; give a later tick, or an infinite one for no training"
            )
        if (parts := trainings.tick != np.floor(trainings.tick)).any():
            part = int(parts.argmax())
            raise ValueError(f"tick={trainings.tick[part]:g} of episode {part}: must be a whole number, or infinite")
        if not (known := np.isin(trainings.replay, REPLAYS)).all():
            row = int(known.argmin())
            raise ValueError(
                f"replay={str(trainings.replay[row])!r} of episode {row}: must be one of {', '.join(REPLAYS)}"
            )
        over = trainings.tick > self.ticks
        until = np.where(over, self.ticks + 1, trainings.tick).astype(np.int64)  # the first tick of another predictor
        waited = until - last - 1
        vectors = self._vectors(np.zeros(self.num_envs)) * waited[:, None]
        rows = np.flatnonzero(~over)
        self._tick[rows], self._pending[rows] = until[rows], (until - last)[rows]
        size = megabatches_with(trainings.replay[rows], self._tick[rows], self._pending[rows], self.ticks)
        spent = self._simulate(rows, size, restart[rows], grow[rows])
        vectors[rows] += self._vectors(spent)[rows]
        self._cer -= vectors[:, 0]
        ended = over | (self._tick == self.ticks)
        rewards = self._rewards(vectors)
        infos = self._restart(ended, vectors) if ended.any() else {}
        return self._observations(), rewards, ended, np.zeros_like(ended), infos | self._infos(vectors, self._ended)

    def _infos(self, vectors: NDArray[np.float64], ended: NDArray[np.bool_]) -> dict[str, Any]:
        return super()._infos(vectors, ended) | {"tick": self._tick.copy()}  # of the last training

    def decide(self, train: Any, sizes: Any, restart: Any, grow: Any) -> Any:
        """Raise NotImplementedError: a step of this environment has many ticks."""
        raise NotImplementedError("decide(): a decision is about one tick, and a step has many; call train_at()")

    def wait(self, ticks: int) -> Any:
        """Raise NotImplementedError: a step of this environment waits until the next training."""
        raise NotImplementedError("wait(): each step waits until the next training; call train_at() with its tick")

    def keep_course(self) -> None:
        """Raise NotImplementedError: a step of this environment has many ticks, of which a picture shows each."""
        raise NotImplementedError("keep_course(): a step has many ticks; view an episode of DecisionSurrogateVectorEnv")

    @property
    def learners(self) -> Learners:
        """The state of each episode's learner, which no policy can see in a real run; copies."""
        learners = Learners(self._tick, self._logit, self._quality, self._trained, self._processed, self._grown)
        return learners.of(np.arange(self.num_envs))

    def _progress(self, rows: Any) -> dict[str, Any]:
        """Return the features' arguments; before the first training, they are those of tick 1."""
        return super()._progress(rows) | {"tick": np.maximum(self._tick[rows], 1)}

    def _show_waiting(self) -> None:
        """Leave the observations as they are: each step trains or starts again, so no episode only waits."""

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which decisions are possible: all of them, bool (n, decisions)."""
        return np.ones((self.num_envs, self.menu.stop + 1), bool)
