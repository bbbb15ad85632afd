"""The surrogate environment: decisions on a fitted learning curve, one episode at a time.

`agents.rl.surrogates.surrogate_vector` has many episodes at once.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.rl.environments.checks import checked_action, checked_seed, refuse_options
from agents.rl.surrogates.episodes import EpisodesVectorEnv, Observations
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv
from alma_env.errors import ArgumentTypeError
from alma_env.rendering.drawn import Drawn
from alma_env.rendering.renderer import FPS, MODES, Renderer
from alma_env.rendering.view import View


class SurrogateEnv(Drawn, gym.Env[Observations, Any]):
    """A single environment: one episode of `SurrogateVectorEnv`, with the same arguments.

    It has neither ``num_envs`` nor ``autoreset_mode``. ``render_mode`` may also be ``"human"``, see `alma_env.AlmaEnv`.
    """

    _vector_class: type[Any] = SurrogateVectorEnv
    metadata: dict[str, Any] = {"render_modes": [*MODES], "render_fps": FPS}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, *, render_mode: str | None = None, **keywords: Any) -> None:
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)
        for name in ("num_envs", "autoreset_mode"):
            if name in keywords:
                raise ArgumentTypeError(
                    f"unexpected keyword argument {name!r}: this is a single environment; leave it out, or make "
                    f"{self._vector_class.__name__}"
                )
        self.vector: EpisodesVectorEnv = self._vector_class(1, **keywords)
        if render_mode is not None:
            self.vector.keep_course()
        self.action_space = self.vector.single_action_space
        self.observation_space = self.vector.single_observation_space
        self._running = False

    @property
    def reward_space(self) -> spaces.Box:
        """The space of a reward with ``reward="vector"``; an AttributeError otherwise."""
        return self.vector.reward_space

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are allowed, see `WaitEnv`."""
        mask: NDArray[np.bool_] = self.vector.action_masks()[0]
        return mask

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode.

        Raises:
            TypeError: the seed is not an integer.
            ValueError: options are given; this environment has none.
        """
        refuse_options(options)
        seed = checked_seed(seed)
        super().reset(seed=seed)
        observations, infos = self.vector.reset(seed=seed)
        self._running = True
        self._renderer.show(self._view)
        return observations[0], _first(infos)

    def step(self, action: Any) -> tuple[Observations, Any, bool, bool, dict[str, Any]]:
        """Wait or train.

        Raises:
            ValueError: the action is not in the space.
            RuntimeError: no episode runs; call ``reset``.
        """
        if not self._running:
            raise RuntimeError("step() without an episode: call reset() first")
        action = checked_action(action, self.action_space)
        observations, rewards, ended, _, infos = self.vector.step(np.asarray(action)[None])
        self._running = not ended[0]
        self._renderer.show(self._view)
        observation = observations[0] if self._running else infos["final_obs"][0]
        info = _first(infos) if self._running else _first(infos) | _first(infos["final_info"])
        reward = float(rewards[0]) if np.ndim(rewards) == 1 else rewards[0]
        return observation, reward, not self._running, False, info

    def _view(self) -> View:
        return self.vector.view(0)


def _first(infos: dict[str, Any]) -> dict[str, Any]:
    names = (name for name in infos if f"_{name}" in infos and not name.startswith("final_"))
    return {name: infos[name][0] if np.ndim(infos[name]) > 1 else infos[name][0].item() for name in names}
