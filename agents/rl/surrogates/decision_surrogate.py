"""The second surrogate environment: ten decisions, at prices that differ from episode to episode.

Spaces and rewards are those of `agents.rl.DecisionEnv`; `agents.rl.models.training_model` models a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from agents.analysis.prices import Prices
from agents.policies.choices import CHOICES, GROW, MASKS, REPLAY, RESTART, TRAIN, choice_space, megabatches_with
from agents.policies.learned.priced_features import PRICES, feature_space, features, write_waiting
from agents.policies.masks import mask_state
from agents.rl.environments.checks import checked_count
from agents.rl.environments.keywords import refuse_unknown
from agents.rl.environments.price_range import PriceRange
from agents.rl.environments.rewards import Reward
from agents.rl.models.fixed_waits import EPISODES, shown_waits, ticks_of
from agents.rl.models.regression import logistic, logit
from agents.rl.models.stacked_models import StackedModels
from agents.rl.models.training_fit import models_for
from agents.rl.models.training_model import TrainingModel, Trainings
from agents.rl.recorded.selection import stream_of
from agents.rl.surrogates.checks import checked_fits, checked_probability
from agents.rl.surrogates.episodes import EpisodesVectorEnv, Observations
from agents.rl.surrogates.surrogate import SurrogateEnv


class DecisionSurrogateVectorEnv(EpisodesVectorEnv):
    """Many episodes on fitted models of trainings; see `DecisionEnv` for actions, observations, rewards and prices.

    With several models, each episode draws one of them. An episode draws its prices, if a range of prices is given.

    ``num_envs`` is the number of episodes. ``stream``, ``learner``, ``width`` and ``recorded`` are the arguments of
    `models_for`, which are not used if ``models`` are given; with ``stream=None``, the stream is the stream of the
    recorded runs. ``pass_price``, ``memory_price`` and ``reward_on`` are those of `DecisionEnv`; with ``models``,
    ``reward_on`` has no effect. ``dead`` is the probability that a training from a new initialisation leaves a network
    which only guesses, until the next restart or growth: recorded runs have too few of them to learn from.
    ``autoreset_mode``, ``render_mode`` and the infos are those of `SurrogateVectorEnv`.
    The infos also have the prices. ``action_masks()`` and ``info["action_mask"]``, bool (n, 10), say which choices are
    not void; a choice with replay, a restart or growth is masked, too, if no recorded run has any of its kind.

    Raises:
        ValueError: no runs of this stream, learner and width were recorded; streams of different lengths; or ``dead``
            is no probability below 1.
        TypeError: a keyword is unknown.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        stream: str | None = "MNIST-ALMA-v0",
        learner: str = "sm",
        width: int | Sequence[int] | None = None,
        recorded: str | Path | None = None,
        models: Sequence[TrainingModel] | None = None,
        pass_price: float | tuple[float, float] = 0.0,
        memory_price: float | tuple[float, float] = 0.0,
        reward_on: str = "test",
        dead: float = 0.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        **keywords: Any,
    ) -> None:
        refuse_unknown(type(self), keywords)
        num_envs = checked_count("num_envs", num_envs, "episode", 1)
        self.dead = checked_probability("dead", dead)
        if models is None:
            stream = stream or stream_of(recorded)
            models = models_for(stream, learner, width, recorded, reward_on)
            self._captions = f"surrogate of {stream}, {learner}", reward_on
        else:
            self._captions = "fitted models", ""
        self.models = checked_fits("models", models, TrainingModel)
        self.price_ranges = PriceRange.of_prices(pass_price=pass_price, memory_price=memory_price)
        self.reward = Reward("scalar", Prices())  # `_rewards` has the prices of each episode
        self._stacked = StackedModels(self.models)
        self._set_up(num_envs, choice_space(), feature_space(), autoreset_mode, render_mode)
        self._size, self._trained, self._processed = np.zeros((3, num_envs), np.int64)
        self._logit, self._quality = np.zeros((2, num_envs))
        self._dead = np.zeros(num_envs, bool)
        self._prices = np.zeros((2, num_envs))  # of a full pass and of memory
        seen = self._stacked
        known = np.ones((len(seen), len(CHOICES)), bool)  # choices of which a recorded run has an example
        for possible, choices in ((seen.replays, REPLAY != "none"), (seen.restarts, RESTART), (seen.grows, GROW)):
            known &= possible[:, None] | ~choices
        self._masks = np.concatenate([MASKS[True] & choices for choices in known])  # four rows for each model

    def _start(self, rows: NDArray[np.int64]) -> None:
        """Start episodes with new prices: tick 0 is scored and D_1 has arrived."""
        super()._start(rows)
        self._size[rows] = self._trained[rows] = self._processed[rows] = 0
        self._logit[rows] = logit(self._error[rows])
        for price, drawn in zip(self.price_ranges.values(), self._prices, strict=True):
            drawn[rows] = price.draw(self.np_random, len(rows))

    def _first_errors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self._stacked.draw_first_errors(self._curve[rows], self.np_random))

    def step(self, actions: Any) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Wait or train in every episode.

        Args:
            actions: integers 0..9, (n,): numbers of `agents.policies.choices.CHOICES`. A void choice does what an
                unmasked one does. So a choice that no recorded run contains trains without its replay or restart.

        Raises:
            RuntimeError: ``reset`` was not called; or the mode is DISABLED and an episode has ended.
            ValueError: the actions are of another shape, or not in the space.
        """
        choices = self._checked(actions)
        return self._advance(TRAIN[choices], partial(self._carry_out, choices=choices))

    def decide(
        self, train: Any, sizes: Any, restart: Any, grow: Any
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Do a `step` with decisions instead of choices.

        Args:
            train: which episodes train, bool (n,).
            sizes: mega-batches on which they train, (n,).
            restart: which of them restart, bool (n,).
            grow: growth steps before the training, (n,).

        Raises:
            RuntimeError: ``reset`` was not called.
            ValueError: a value is not one for each episode, a training is not on what is gathered and a part of the
                rest, or mega-batches or growth steps are negative or not whole.
        """
        self._require_episodes()
        train, restart = (np.asarray(one, bool) for one in (train, restart))
        sizes, grow = (np.asarray(one) for one in (sizes, grow))
        for name, values in (("train", train), ("sizes", sizes), ("restart", restart), ("grow", grow)):
            if values.shape != (self.num_envs,):
                raise ValueError(
                    f"{name} of shape {values.shape}: must be one value for each of {self.num_envs} episodes"
                )
        whole = (sizes == np.floor(sizes)) & (grow == np.floor(grow))
        inside = (self._pending <= sizes) & (sizes <= self._tick) & (grow >= 0) & whole
        outside = train & ~self._ended & ~inside
        if outside.any():
            row = int(outside.argmax())
            gathered, tick = self._pending[row], self._tick[row]
            raise ValueError(
                f"sizes={sizes[row]}, grow={grow[row]} of episode {row}: a training at tick {tick} with {gathered} "
                f"mega-batches gathered must be on {gathered} to {tick} of them, after 0 growth steps or more"
            )
        sizes, grow = (np.where(train, one, 0).astype(np.int64) for one in (sizes, grow))
        return self._advance(train, lambda rows: self._simulate(rows, sizes[rows], restart[rows], grow[rows]))

    def wait(self, ticks: int) -> NDArray[np.float64]:
        """Wait in every episode for some ticks, none of which is the last: one call in the place of many steps.

        Returns:
            The sums of the vector rewards of these ticks, float64 (n, 3).

        Raises:
            RuntimeError: ``reset`` was not called, or the environment keeps the course of its episodes.
            ValueError: the number of ticks is negative or not whole, or an episode would end.
        """
        self._require_episodes()
        if self._pictures is not None:
            raise RuntimeError("wait() with the course of the episodes: it keeps no course; wait with step()")
        left = self.ticks - int(self._tick.max())
        if not (0 <= ticks <= left and ticks == int(ticks)):
            raise ValueError(
                f"ticks={ticks}: must be a whole number from 0 to {left}, so that no episode ends; call step() at the "
                "end of an episode"
            )
        ticks = int(ticks)
        self._cer += ticks * self._error
        self._tick += ticks
        self._pending += ticks
        return ticks * self._vectors(np.zeros(self.num_envs))

    def _carry_out(self, rows: NDArray[np.int64], choices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Train as chosen in the episodes of these rows; return the FLOPs of all episodes."""
        chosen, model = choices[rows], self._curve[rows]
        replay = REPLAY[chosen]
        if not self._stacked.replays.all():
            replay = np.where(self._stacked.replays[model], replay, "none")
        size = megabatches_with(replay, self._tick[rows], self._pending[rows], self.ticks)
        return self._simulate(rows, size, RESTART[chosen] & self._stacked.restarts[model], GROW[chosen])

    def _simulate(
        self, rows: NDArray[np.int64], size: NDArray[Any], restart: NDArray[np.bool_], grow: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Train in the episodes of these rows, with one size for each; return the FLOPs of all episodes."""
        spent = np.zeros(self.num_envs)
        if not len(rows):
            return spent
        model, again = self._curve[rows], self._stages[rows] > 0
        steps = grow * again * self._stacked.grows[model]
        cold = restart & ~((steps > 0) & self._stacked.untrained_growth[model]) | ~again
        self._grown[rows] += steps
        self._trained[rows[cold]] = self._processed[rows[cold]] = 0
        self._quality[rows[cold]] = self.np_random.standard_normal(cold.sum()) * self._stacked.quality[model[cold]]
        if self.dead:
            self._dead[rows[cold]] = self.np_random.random(cold.sum()) < self.dead
            self._dead[rows[self._grown[rows] > 0]] = False
        inputs = Trainings(
            last=self._logit[rows],
            size=size,
            tick=self._tick[rows],
            pending=self._pending[rows],
            trained=self._trained[rows],
            processed=self._processed[rows],
            grown=self._grown[rows],
            grows=steps,
        )
        self._validation[2:, rows] = self._validation[:2, rows]
        self._logit[rows], self._validation[0, rows], self._validation[1, rows] = self._stacked.outcome(
            model, inputs, cold, self._quality[rows], self._dead[rows], self.np_random
        )
        self._error[rows] = logistic(self._logit[rows])
        spent[rows] = self._stacked.flops(model, size, self._grown[rows])
        self._flops += spent
        self._trained[rows] += 1
        self._processed[rows] += size
        self._size[rows] = size
        self._stages[rows] += 1
        self._pending[rows] = 0
        self._changed[rows] = True
        return spent

    def _simulate_waits(self, curve: int) -> dict[int, NDArray[np.float64]]:
        found = {}
        for wait in shown_waits(self.ticks):
            env = DecisionSurrogateVectorEnv(EPISODES, models=[self.models[curve]])
            _, infos = env.reset(seed=0)
            means = [-infos["vector_reward"][:, 0].mean()]
            trains = ticks_of(wait, self.ticks)
            for tick in range(1, self.ticks + 1):
                *_, infos = env.step(np.full(EPISODES, int(tick in trains)))
                means.append(-infos["vector_reward"][:, 0].mean())
            found[wait] = np.array(means)
        return found

    def _vectors(self, spent: NDArray[np.float64]) -> NDArray[np.float64]:
        size = self._parameters() / self._stacked.parameters(self._curve)
        vectors = np.empty((self.num_envs, 3))
        vectors[:, 0], vectors[:, 1], vectors[:, 2] = self._error, spent / self._stacked.pass_flops[self._curve], size
        return np.negative(vectors, out=vectors)

    def _rewards(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        of_pass, of_memory = self._prices
        return np.asarray(vectors[:, 0] + (of_pass * vectors[:, 1] + of_memory * vectors[:, 2]))

    def _show_waiting(self) -> None:
        at = {"tick": self._tick, "ticks": self.ticks, "pending": self._pending}
        write_waiting(self._shown, **at, pass_price=self._prices[0])

    def _features(self, rows: Any) -> Observations:
        return features(
            **self._progress(rows),
            last_size=self._size[rows],
            processed=self._processed[rows],
            pass_price=self._prices[0, rows],
            memory_price=self._prices[1, rows],
            grows=self._stacked.grows[self._curve[rows]],
            free_growth=self._stacked.free_growth[self._curve[rows]],
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which choices are not void at this tick, bool (n, 10)."""
        state = mask_state(self._tick, self._pending, self._stages)
        masks: NDArray[np.bool_] = self._masks.take(self._curve * len(MASKS[True]) + state, 0)
        return masks

    def _infos(self, vectors: NDArray[np.float64], ended: NDArray[np.bool_]) -> dict[str, Any]:
        more = dict(zip(PRICES, self._prices.copy(), strict=True)) | {"action_mask": self.action_masks()}
        return super()._infos(vectors, ended) | more | {f"_{name}": np.ones(self.num_envs, bool) for name in more}


class DecisionSurrogateEnv(SurrogateEnv):
    """A single environment: one episode of `DecisionSurrogateVectorEnv`, with the same arguments but ``num_envs``."""

    _vector_class = DecisionSurrogateVectorEnv
