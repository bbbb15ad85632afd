"""Surrogates as vectorised environments of Stable-Baselines3, without a Python loop over episodes, and the learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from agents.rl.surrogates.episodes import EpisodesVectorEnv


def learn(model: BaseAlgorithm, steps: int, *, progress: bool, keep: Callable[[], object]) -> None:
    """Let a model learn. If a failure or Ctrl-C ends the learning after an update, call ``keep`` and raise it again."""
    try:
        model.learn(steps, progress_bar=progress)
    except BaseException:
        if model._n_updates:
            keep()
        raise


class SurrogateVecEnv(VecEnv):
    """`SurrogateVectorEnv` for ``PPO("MlpPolicy", SurrogateVecEnv(env))``.

    The infos of an episode that ended hold ``terminal_observation`` and ``cer``, its cumulative error rate.

    Args:
        env: a surrogate with episodes side by side, also one of `DecisionSurrogateVectorEnv`.

    Raises:
        ValueError: the rewards are vectors, or the mode of autoreset is not SAME_STEP.
    """

    def __init__(self, env: EpisodesVectorEnv) -> None:
        if env.reward.kind != "scalar" or env.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"reward={env.reward.kind!r}, autoreset_mode={env.autoreset_mode.value!r}: Stable-Baselines3 needs "
                "rewards that are numbers and episodes that start again in the same step; leave both keywords out"
            )
        self.env = env
        self._actions: Any = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> VecEnvObs:
        """Start all episodes, with the seed of ``seed(s)`` if it was called."""
        observations, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        return observations

    def step_async(self, actions: np.ndarray[Any, Any]) -> None:
        """Store the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Carry out the stored actions."""
        observations, rewards, ended, _, infos = self.env.step(self._actions)
        of_episodes: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(ended):
            of_episodes[row] = {
                "terminal_observation": infos["final_obs"][row],
                "cer": float(infos["final_info"]["cer"][row]),
                "TimeLimit.truncated": False,
            }
        return observations, rewards.astype(np.float32), ended, of_episodes

    def close(self) -> None:
        """Do nothing; the surrogate holds no resources."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return an attribute, once per episode; all episodes share it. AttributeError if there is none."""
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Raise NotImplementedError, because all episodes share their attributes."""
        raise NotImplementedError(
            f"{attr_name}={value!r}: the episodes of a surrogate share their attributes; make a new environment"
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the action masks of the episodes, for sb3-contrib's MaskablePPO.

        Raises:
            NotImplementedError: any other method, because there are no single environments.
        """
        if method_name == "action_masks":
            return list(self.env.action_masks()[list(self._get_indices(indices))])
        raise NotImplementedError(
            f"{method_name}: a surrogate has no single environments; call the methods of the surrogate"
        )

    def env_is_wrapped(self, wrapper_class: Any, indices: int | Iterable[int] | None = None) -> list[bool]:
        """Return False for each episode."""
        return [False] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[np.ndarray[Any, Any] | None]:
        """Return the picture of each episode; None for each if ``render_mode`` of the surrogate is not rgb_array."""
        frames = self.env.render() if self.env.render_mode == "rgb_array" else None
        return [None] * self.num_envs if frames is None else [np.asarray(frame) for frame in frames]


class JoinedVecEnv(VecEnv):
    """The episodes of several vectorised environments, one after the other, as one environment.

    Args:
        parts: environments with the same spaces.
    """

    def __init__(self, parts: Sequence[SurrogateVecEnv]) -> None:
        self.parts = list(parts)
        self._starts = np.cumsum([0, *(part.num_envs for part in self.parts)])
        super().__init__(int(self._starts[-1]), parts[0].observation_space, parts[0].action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Give each environment a seed of its own."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.parts)).tolist()
        return [one for part, own in zip(self.parts, seeds, strict=True) for one in part.seed(own)]

    def reset(self) -> VecEnvObs:
        """Start all episodes."""
        return np.concatenate([np.asarray(part.reset()) for part in self.parts])

    def step_async(self, actions: np.ndarray[Any, Any]) -> None:
        """Store the actions of the next step."""
        for part, start in zip(self.parts, self._starts, strict=False):
            part.step_async(actions[start : start + part.num_envs])

    def step_wait(self) -> VecEnvStepReturn:
        """Carry out the stored actions."""
        steps = [part.step_wait() for part in self.parts]
        observations, rewards, ended = (np.concatenate([np.asarray(step[i]) for step in steps]) for i in range(3))
        return observations, rewards, ended, [info for step in steps for info in step[3]]

    def close(self) -> None:
        """Do nothing; surrogates hold no resources."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return an attribute, once per episode."""
        found = [value for part in self.parts for value in part.get_attr(attr_name)]
        return [found[row] for row in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Raise NotImplementedError, because the episodes of a surrogate share their attributes."""
        self.parts[0].set_attr(attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the action masks of the episodes; raise NotImplementedError for any other method."""
        found = [mask for part in self.parts for mask in part.env_method(method_name)]
        return [found[row] for row in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: int | Iterable[int] | None = None) -> list[bool]:
        """Return False for each episode."""
        return [False] * len(list(self._get_indices(indices)))
