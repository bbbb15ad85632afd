"""The second surrogate environment: ten decisions, at prices that differ from episode to episode.

Spaces and rewards are those of `agents.rl.decision_env.DecisionEnv`; `agents.rl.training_model` models a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agents.policies.choices import GROW, REPLAY_ALL, REPLAY_LAST, RESTART, TRAIN, allowed, choice_space, sizes_of
from agents.policies.priced_features import feature_space, features
from agents.rl.learning_curve import logit
from agents.rl.price_range import PriceRange, relative_reward_space
from agents.rl.surrogate import Observations, SurrogateEnv, SurrogateVectorEnv
from agents.rl.training_model import POOL_SIZE, TrainingModel, Trainings, models_for, validation_terms


class DecisionSurrogateVectorEnv(SurrogateVectorEnv):
    """Many episodes on fitted models of trainings; see `DecisionEnv` for actions, observations, rewards and prices.

    A finished episode starts again in the same step, with new prices if a range of prices is given. With several
    models, each episode draws one of them.

    ``num_envs`` is the number of episodes. ``stream``, ``learner``, ``width`` and ``recorded`` are the arguments of
    `models_for`, which are not used if ``models`` are given. ``pass_price``, ``memory_price`` and ``reward_on`` are
    those of `DecisionEnv`; with ``models``, ``reward_on`` has no effect. ``info["action_mask"]``, bool (n, 10), says
    which choices have an effect of their own; a choice of which no recorded run has an example is masked, too.

    Raises:
        ValueError: no runs of this stream, learner and width were recorded; or streams of different lengths.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        stream: str = "MNIST-ALMA-v0",
        learner: str = "sm",
        width: int | Sequence[int] | None = None,
        recorded: str | Path | None = None,
        models: Sequence[TrainingModel] | None = None,
        pass_price: float | tuple[float, float] = 0.0,
        memory_price: float | tuple[float, float] = 0.0,
        reward_on: str = "test",
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs}: must be at least 1 episode; the default is 1")
        self.models = list(models) if models is not None else models_for(stream, learner, width, recorded, reward_on)
        if len({model.ticks for model in self.models}) > 1:
            raise ValueError(
                f"streams of {', '.join(str(model.ticks) for model in self.models)} mega-batches: the models of one "
                "environment must have streams of equal length; make one environment per length"
            )
        self.num_envs = num_envs
        self.pass_price = PriceRange.of("pass_price", pass_price)
        self.memory_price = PriceRange.of("memory_price", memory_price)
        self.single_action_space = choice_space()
        self.single_observation_space = cast("gym.Space[Observations]", feature_space())
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.reward_space = relative_reward_space()
        self._stack()
        self._started = False
        self._curve, self._tick, self._pending, self._stages, self._grown = np.zeros((5, num_envs), np.int64)
        self._size, self._processed = np.zeros((2, num_envs), np.int64)
        self._error, self._flops, self._cer, self._logit, self._quality = np.zeros((5, num_envs))
        self._prices = np.zeros((2, num_envs))  # of a pass and of memory
        self._validation = np.full((4, num_envs), np.nan)  # loss and error, then loss and error of the training before

    def _stack(self) -> None:
        """Stack the numbers of all models into arrays whose first axis is the model."""
        self.ticks = self.models[0].ticks
        steps = max(len(model.parameters) for model in self.models)

        def stacked(name: str) -> NDArray[Any]:
            return np.stack([np.asarray(getattr(model, name)) for model in self.models])

        def padded(name: str) -> NDArray[Any]:
            """Repeat the last recorded value: further growth steps change nothing."""
            values = (getattr(model, name) for model in self.models)
            return np.stack([np.concatenate([one, np.repeat(one[-1:], steps - len(one), 0)]) for one in values])

        self._guess_loss, self._first_error, self._low, self._high = map(
            stacked, ("guess_loss", "first_error", "low", "high")
        )
        self._warm, self._cold, self._validation_weights = map(stacked, ("warm", "cold", "validation"))
        self._warm_edges, self._warm_residuals = map(stacked, ("warm_edges", "warm_residuals"))
        self._cold_edges, self._cold_residuals = map(stacked, ("cold_edges", "cold_residuals"))
        self._spread, self._pass_flops = map(stacked, ("quality", "pass_flops"))
        self._replays, self._restarts, self._grows = map(stacked, ("replays", "restarts", "grows"))
        self._parameter_steps, self._flop_lines = padded("parameters"), padded("flops")

    def _start(self, rows: NDArray[np.int64]) -> None:
        """Start episodes with new prices: tick 0 is scored and D_1 has arrived."""
        super()._start(rows)
        self._size[rows] = self._processed[rows] = 0
        self._logit[rows] = logit(self._error[rows])
        for price, drawn in zip((self.pass_price, self.memory_price), self._prices, strict=True):
            drawn[rows] = price.draw(self.np_random, len(rows))

    def step(self, actions: Any) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Wait or train in every episode.

        Args:
            actions: integers 0..9, (n,): numbers of `agents.policies.choices.CHOICES`. A void choice does what an
                unmasked one does.

        Raises:
            RuntimeError: ``reset`` was not called.
            ValueError: the actions are of another shape.
        """
        if not self._started:
            raise RuntimeError("step() before reset(): there is no episode; call reset() first")
        choices = np.asarray(actions)
        if choices.shape != (self.num_envs,):
            raise ValueError(f"actions of shape {choices.shape}: must be {(self.num_envs,)}")
        sizes = sizes_of(choices, self._tick, self._pending, self.ticks)
        return self.decide(TRAIN[choices], sizes, RESTART[choices], GROW[choices])

    def decide(
        self, train: NDArray[np.bool_], sizes: Any, restart: NDArray[np.bool_], grow: NDArray[Any]
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Do a `step` with decisions instead of choices.

        Args:
            train: which episodes train, bool (n,).
            sizes: mega-batches on which they train, (n,).
            restart: which of them restart, bool (n,).
            grow: growth steps before the training, (n,).
        """
        spent = np.zeros(self.num_envs)
        rows = np.flatnonzero(train)
        if len(rows):
            trained = self._stages[rows] > 0
            spent[rows] = self._simulate(rows, sizes[rows], restart[rows] & trained, grow[rows] * trained)
        return self._answer(spent)

    def _simulate(
        self, rows: NDArray[np.int64], size: NDArray[Any], restart: NDArray[np.bool_], grow: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Train in the episodes of these rows; return their FLOPs."""
        cold = restart | (self._stages[rows] == 0)
        self._processed[rows[cold]] = 0
        self._grown[rows] += grow * self._grows[self._curve[rows]]
        inputs = Trainings(
            last=self._logit[rows],
            size=size,
            tick=self._tick[rows],
            pending=self._pending[rows],
            stages=self._stages[rows],
            processed=self._processed[rows],
            grown=self._grown[rows],
            grows=grow,
        )
        curve = self._curve[rows]
        after, rest = np.empty(len(rows)), np.empty((len(rows), 3))
        drawn = self.np_random.integers(POOL_SIZE, size=len(rows))
        for kind in (cold, ~cold):
            if not kind.any():
                continue
            chosen, of, model = inputs.of(kind), rows[kind], curve[kind]
            if kind is cold:
                self._quality[of] = self.np_random.standard_normal(len(of)) * self._spread[model]
                terms, weights, edges, residuals = chosen.cold(), self._cold, self._cold_edges, self._cold_residuals
                place = np.log(chosen.size)
            else:
                terms, weights, edges, residuals = chosen.warm(), self._warm, self._warm_edges, self._warm_residuals
                place = chosen.last
            pool = (edges[model] <= place[:, None]).sum(1)
            rest[kind] = residuals[model, pool, drawn[kind]]
            quality = 0.0 if kind is cold else self._quality[of]
            after[kind] = self._linear(terms, weights, model) + quality + rest[kind, 0]
        after = np.clip(after, self._low[curve], self._high[curve])
        self._logit[rows] = after
        self._error[rows] = 1 / (1 + np.exp(-after))
        seen = self._linear(validation_terms(after, inputs.size), self._validation_weights, curve) + rest[:, 1:]
        self._validation[2:, rows] = self._validation[:2, rows]
        self._validation[0, rows] = np.exp(seen[:, 0])
        self._validation[1, rows] = np.clip(seen[:, 1], 0, 1)
        line = self._flop_lines[curve, self._steps(rows)]
        spent = np.maximum(line[:, 0] + line[:, 1] * size, 0)
        self._flops[rows] += spent
        self._processed[rows] += size
        self._size[rows] = size
        self._stages[rows] += 1
        self._pending[rows] = 0
        return np.asarray(spent)

    def _linear(self, terms: NDArray[Any], weights: NDArray[Any], model: NDArray[np.int64]) -> NDArray[Any]:
        """Return terms (n, t) · the weights of each episode's model, (models, t) or (models, t, k)."""
        if len(self.models) == 1:
            return np.asarray(terms @ weights[0])
        return np.asarray(np.einsum("nt,nt...->n...", terms, weights[model]))

    def _rewards(self, spent: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        passes = spent / self._pass_flops[self._curve]
        size = self._parameters() / self._parameter_steps[self._curve, 0]
        parts = -np.stack([self._error, passes, size], -1)
        return parts, np.asarray(parts[:, 0] + (self._prices.T * parts[:, 1:]).sum(1))

    def _observations(self, rows: Any = slice(None)) -> Observations:
        loss, error, previous_loss, previous_error = self._validation[:, rows]
        curve = self._curve[rows]
        return features(
            tick=self._tick[rows],
            ticks=self.ticks,
            pending=self._pending[rows],
            stages=self._stages[rows],
            validation_loss=loss,
            validation_error=error,
            previous_validation_loss=previous_loss,
            previous_validation_error=previous_error,
            guess_loss=self._guess_loss[curve],
            parameters=self._parameters(rows),
            first_parameters=self._parameter_steps[curve, 0],
            flops=self._flops[rows],
            last_size=self._size[rows],
            processed=self._processed[rows],
            pass_price=self._prices[0, rows],
            memory_price=self._prices[1, rows],
            grows=self._grows[curve],
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which choices have an effect of their own at this tick, bool (n, 10)."""
        mask = allowed(self._tick, self._pending, self._stages, grows=True)
        for possible, choices in (
            (self._replays, REPLAY_LAST | REPLAY_ALL),
            (self._restarts, RESTART),
            (self._grows, GROW),
        ):
            mask &= possible[self._curve][:, None] | ~choices
        return np.asarray(mask)

    def _infos(self, parts: NDArray[np.float64] | None = None) -> dict[str, Any]:
        present = np.ones(self.num_envs, bool)
        return super()._infos(parts) | {"action_mask": self.action_masks(), "_action_mask": present}


class DecisionSurrogateEnv(SurrogateEnv):
    """A single environment: one episode of `DecisionSurrogateVectorEnv`, with the same arguments but ``num_envs``."""

    _vector_class = DecisionSurrogateVectorEnv

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which choices have an effect of their own at this tick, bool (10,)."""
        assert isinstance(self.vector, DecisionSurrogateVectorEnv)
        return np.asarray(self.vector.action_masks()[0])
