"""Many episodes on fitted models at once: what the surrogates of both decision problems share.

An episode waits, or a training is simulated. The subclasses have the actions, the model of a training, the observations
and the rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agents.rl.environments.checks import checked_seed
from agents.rl.surrogates.checks import checked_actions, checked_mask, checked_mode, require_running
from agents.rl.surrogates.pictures import SurrogatePictures
from alma_env.protocol import read_options
from alma_env.rendering.renderer import FPS, Renderer
from alma_env.rendering.view import View

Observations = NDArray[np.float32]


class EpisodesVectorEnv(VectorEnv[Observations, Any, NDArray[Any]]):
    """Many episodes on fitted models; the base class of the surrogates.

    A subclass sets ``reward``, ``_stacked`` and ``_captions``, calls `_set_up`, and defines ``step`` and the methods
    that raise NotImplementedError here.

    Attributes:
        ticks: number of mega-batches in a stream, B.
        reward: a `Reward`.
    """

    reward: Any
    _stacked: Any  # the fitted models as arrays
    _captions: tuple[str, str]  # of pictures

    metadata: dict[str, Any] = {  # noqa: RUF012 - as gymnasium.vector.VectorEnv declares it
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": FPS,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def _set_up(
        self,
        num_envs: int,
        action_space: gym.Space[Any],
        observation_space: gym.Space[Any],
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None,
    ) -> None:
        """Create spaces and the state of the episodes."""
        self.render_mode = Renderer(render_mode, self.metadata["render_modes"]).mode
        self.autoreset_mode = checked_mode(autoreset_mode)
        self.metadata = type(self).metadata | {"autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.ticks = self._stacked.ticks
        self.single_action_space = action_space
        self.single_observation_space = cast("gym.Space[Observations]", observation_space)
        self.action_space = batch_space(action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._started = False
        self._ended = np.zeros(num_envs, bool)  # never with SAME_STEP
        self._shown: Observations = np.empty((0, 0), np.float32)  # the last observations
        self._changed = np.ones(num_envs, bool)  # episodes that have started or trained since these observations
        self._curve, self._tick, self._pending, self._stages, self._grown = np.zeros((5, num_envs), np.int64)
        self._error, self._flops, self._cer = np.zeros((3, num_envs))
        self._validation = np.full((4, num_envs), np.nan)  # loss and error, then loss and error of the training before
        self._pictures: SurrogatePictures | None = None
        if render_mode is not None:
            self.keep_course()

    @property
    def reward_space(self) -> spaces.Box:
        """The space of one reward with ``reward="vector"``; an AttributeError otherwise."""
        space: spaces.Box = self.reward.space
        return space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start all episodes, or those of ``options={"reset_mask": mask}``, bool (n,).

        Raises:
            TypeError: the seed is not an integer, or the options are no dictionary.
            ValueError: an unknown option, a mask of another shape or dtype, or a first reset of some episodes only.
        """
        options = read_options(options, "{'reset_mask': mask}")
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, bool)))
        if options:
            raise ValueError(f"options {sorted(options, key=str)}: unknown; the only option of reset is 'reset_mask'")
        rows = np.flatnonzero(checked_mask(mask, self.num_envs, self._started))
        super().reset(seed=checked_seed(seed))
        self._started = True
        self._start(rows)
        self._note_start(rows)
        infos = self._infos(self._vectors(np.zeros(self.num_envs)), self._ended)
        return self._observations(), infos | {name: mask.copy() for name in infos if name.startswith("_")}

    def _start(self, rows: NDArray[np.int64]) -> None:
        """Start episodes: tick 0 is scored and D_1 has arrived."""
        if len(self._stacked) > 1:
            self._curve[rows] = self.np_random.integers(len(self._stacked), size=len(rows))
        for state in (self._stages, self._grown, self._flops):
            state[rows] = 0
        self._tick[rows] = self._pending[rows] = 1
        self._ended[rows], self._changed[rows] = False, True
        self._validation[:, rows] = np.nan
        self._error[rows] = self._cer[rows] = self._first_errors(rows)

    def _checked(self, actions: Any) -> NDArray[np.int64]:
        self._require_episodes()
        return checked_actions(actions, self.num_envs, self.single_action_space)

    def _require_episodes(self) -> None:
        if not self._started:
            raise RuntimeError("step() before reset(): there is no episode; call reset() first")

    def _advance(
        self, trains: NDArray[np.bool_], train: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Do a `step`: ``train`` simulates trainings in the episodes of its rows, and returns the FLOPs of all."""
        self._require_episodes()
        over = np.flatnonzero(self._ended)
        require_running(len(over), self.autoreset_mode)
        self._note_start(np.flatnonzero(self._tick == 1))
        spent = train(np.flatnonzero(trains & ~self._ended))
        if self._pictures is not None:
            rows = np.flatnonzero(~self._ended)
            self._pictures.add(rows, self._tick, self._error, self._parameters(), spent, trains)
        self._cer += self._error
        vectors = self._vectors(spent)
        ended = self._tick == self.ticks
        self._pending += ~ended  # after the last tick no mega-batch arrives
        self._tick += ~ended
        if len(over):  # NEXT_STEP: these episodes only start
            vectors[over], ended[over] = 0, False
        rewards = self._rewards(vectors)  # before an episode starts again, which draws new prices
        if len(over):
            self._start(over)
            self._note_start(over)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._ended = ended.copy()
        elif ended.any():
            infos = self._restart(ended, vectors)
        infos |= self._infos(vectors, self._ended)
        return self._observations(), rewards, ended, np.zeros_like(ended), infos

    def _restart(self, ended: NDArray[np.bool_], vectors: NDArray[np.float64]) -> dict[str, Any]:
        """Start the episodes again that have ended; return the infos of their ends, with these reward vectors."""
        rows = np.flatnonzero(ended)
        final = np.full(self.num_envs, None, dtype=object)
        for row, observation in zip(rows, self._features(rows), strict=True):
            final[row] = observation
        last = self._infos(vectors.copy(), ended)
        for values in last.values():
            values[~ended] = 0  # as Gymnasium fills the rows of episodes without a final info
        self._start(rows)
        return {"final_obs": final, "_final_obs": ended, "final_info": last, "_final_info": ended}

    def _parameters(self, rows: Any = slice(None)) -> NDArray[np.float64]:
        return np.asarray(self._stacked.parameters(self._curve[rows], self._grown[rows]))

    def _observations(self) -> Observations:
        """Return the observations of all episodes; those that only waited are computed from the last ones."""
        if self._changed.all():
            self._shown = self._features(slice(None))
        else:
            rows = np.flatnonzero(self._changed)
            self._shown[rows] = self._features(rows)
            self._show_waiting()
        self._changed[:] = False
        return self._shown.copy()

    def _progress(self, rows: Any) -> dict[str, Any]:
        """Return the arguments of `agents.policies.learned.features.features` for these episodes."""
        loss, error, previous_loss, previous_error = self._validation[:, rows]
        curve = self._curve[rows]
        return {
            "tick": self._tick[rows],
            "ticks": self.ticks,
            "pending": self._pending[rows],
            "stages": self._stages[rows],
            "validation_loss": loss,
            "validation_error": error,
            "previous_validation_loss": previous_loss,
            "previous_validation_error": previous_error,
            "guess_loss": self._stacked.guess_loss[curve],
            "parameters": self._parameters(rows),
            "first_parameters": self._stacked.parameters(curve),
            "flops": self._flops[rows],
        }

    def _infos(self, vectors: NDArray[np.float64], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """Return the infos after the last scored tick, which is the present one where an episode has ended."""
        infos = {
            "tick": self._tick - ~ended,
            "ticks": np.full(self.num_envs, self.ticks),
            "error": self._error.copy(),
            "parameters": self._parameters().copy(),
            "comp": self._flops.copy(),
            "cer": self._cer.copy(),
            "vector_reward": vectors,
        }
        return infos | {f"_{name}": np.ones(self.num_envs, bool) for name in infos}

    def keep_course(self) -> None:
        """Keep the course of the episodes from the next ``reset`` on, for `view`."""
        self._pictures = SurrogatePictures(self.num_envs, self.ticks, self._simulate_waits, *self._captions)

    def _note_start(self, rows: NDArray[np.int64]) -> None:
        if self._pictures is not None:
            self._pictures.start(rows, self._curve, self._error, self._parameters())

    def view(self, row: int) -> View:
        """Return what a picture of an episode shows.

        Raises:
            RuntimeError: there is no episode, or its course is not kept.
        """
        if self._pictures is None:
            raise RuntimeError("view() without the course of the episodes: call keep_course() before reset()")
        return self._pictures.view(row)

    def render(self) -> tuple[Any, ...] | None:
        """Draw each episode so far, as ``render_mode`` says.

        Raises:
            RuntimeError: ``reset`` was not called.
        """
        if self._pictures is None or self.render_mode is None:
            Renderer(None).render(partial(self.view, 0))  # warns
            return None
        return self._pictures.draw(self.render_mode)

    def _first_errors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the errors of the untrained predictors, float64 (n,)."""
        raise NotImplementedError

    def _vectors(self, spent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reward vectors (n, 3) of a tick on which the episodes spent these FLOPs."""
        raise NotImplementedError

    def _rewards(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rewards of reward vectors."""
        raise NotImplementedError

    def _features(self, rows: Any) -> Observations:
        """Return the observations of these episodes."""
        raise NotImplementedError

    def _show_waiting(self) -> None:
        """Change the shown observations of the episodes that only waited."""
        raise NotImplementedError

    def _simulate_waits(self, curve: int) -> dict[int, NDArray[np.float64]]:
        """Return the mean errors of fixed waits on a fitted model at ticks 0..B."""
        raise NotImplementedError

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are allowed in every episode, bool (n, actions)."""
        raise NotImplementedError
