"""The surrogate environment: decisions on a fitted learning curve, in thousands of episodes at once.

Spaces and rewards are those of `WaitEnv`; `agents.rl.learning_curve` models the effect of a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agents.analysis.prices import Prices, reward_space, reward_vector
from agents.policies.actions import Actions
from agents.policies.features import feature_space, features
from agents.rl.episode_history import EpisodeHistory
from agents.rl.fixed_waits import shown_waits
from agents.rl.learning_curve import POOL_SIZE, Curve, curves_for, logit, terms
from alma_env.rendering.renderer import FPS, MODES, Frame, Renderer
from alma_env.rendering.view import View

Observations = NDArray[np.float32]

_EPISODES_OF_A_WAIT = 64  # episodes of each fixed waiting time, whose mean error a picture shows


class SurrogateVectorEnv(VectorEnv[Observations, Any, NDArray[Any]]):
    """Many episodes on fitted learning curves; see `WaitEnv` for actions, observations and rewards.

    A finished episode starts again in the same step (Gymnasium's SAME_STEP). With several curves, each episode draws
    one of them.
    ``reset(seed=s)`` seeds all random numbers. ``reset(options={"reset_mask": mask})`` starts some episodes again.

    ``num_envs`` is the number of episodes. ``stream``, ``learner``, ``width`` and ``recorded`` are the arguments of
    `curves_for`, which are not used if ``curves`` are given. ``actions``, ``replay``, ``grow``, ``flops_price``,
    ``parameter_price`` and ``reward_on`` are those of `WaitEnv`; with ``curves``, ``reward_on`` has no effect, and the
    error is the one to which the curves were fitted. ``render_mode`` is ``"rgb_array"``, ``"ansi"`` or None: `render`
    returns one picture for each episode. An episode that has ended is drawn until the next one answers a tick.

    Raises:
        ValueError: no runs of this stream, learner and width were recorded; or the actions replay or grow, but no
            recorded run did.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as gymnasium.vector.VectorEnv declares it
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": FPS,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        stream: str = "MNIST-ALMA-v0",
        learner: str = "sm",
        width: int | Sequence[int] | None = None,
        recorded: str | Path | None = None,
        curves: Sequence[Curve] | None = None,
        actions: str = "train",
        replay: bool = False,
        grow: bool = False,
        flops_price: float = 0.0,
        parameter_price: float = 0.0,
        reward_on: str = "test",
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs}: must be at least 1 episode; the default is 1")
        self.curves = list(curves) if curves is not None else curves_for(stream, learner, width, recorded, reward_on)
        self.num_envs = num_envs
        self.prices = Prices(flops_price, parameter_price)
        self._check(actions, replay, grow)
        self.actions = Actions(actions, all(curve.grows for curve in self.curves), replay, grow)
        self.single_action_space = self.actions.space()
        self.single_observation_space = cast("gym.Space[Observations]", feature_space())
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.reward_space = reward_space()
        self._stack()
        self._started = False
        self._curve, self._tick, self._pending, self._stages, self._grown = np.zeros((5, num_envs), np.int64)
        self._error, self._flops, self._cer = np.zeros((3, num_envs))
        self._validation = np.full((4, num_envs), np.nan)  # loss and error, then loss and error of the training before
        self.render_mode = render_mode
        self._title = ", ".join(["fitted curves"] if curves is not None else [f"surrogate of {stream}", learner])
        self._error_of = "" if curves is not None else reward_on
        self._renderers = [Renderer(render_mode, self.metadata["render_modes"]) for _ in self.curves]
        self._fixed_waits: dict[int, dict[int, NDArray[np.float64]]] = {}  # by curve
        self._history: EpisodeHistory | None = None
        if render_mode is not None:
            self.keep_history()

    def _check(self, actions: str, replay: bool, grow: bool) -> None:
        missing = [
            name
            for name, wanted in (("replay", replay or actions != "train"), ("grow", grow))
            if wanted and not all(getattr(curve, f"{name}s") for curve in self.curves)
        ]
        if missing:
            raise ValueError(
                f"actions={actions!r}, replay={replay}, grow={grow}: no recorded run has {' and '.join(missing)}; "
                f"use actions='train' without {' and '.join(missing)}, or record such runs and give recorded=FILE"
            )
        if len({curve.ticks for curve in self.curves}) > 1:
            raise ValueError(
                f"streams of {', '.join(str(curve.ticks) for curve in self.curves)} mega-batches: the curves of one "
                "environment must have streams of equal length; make one environment per length"
            )

    def _stack(self) -> None:
        """Stack the numbers of all curves into arrays whose first axis is the curve."""
        steps = max(len(curve.parameters) for curve in self.curves)

        def padded(values: NDArray[Any]) -> NDArray[Any]:
            """Repeat the last recorded value: further growth steps change nothing."""
            return np.concatenate([values, np.repeat(values[-1:], steps - len(values), 0)])

        self.ticks = self.curves[0].ticks
        self._guess_loss = np.array([curve.guess_loss for curve in self.curves])
        self._first_error = np.array([curve.first_error for curve in self.curves])
        self._weights = np.stack([curve.weights for curve in self.curves])
        self._low, self._high = (np.stack([getattr(curve, name) for curve in self.curves]) for name in ("low", "high"))
        self._edges = np.stack([curve.edges for curve in self.curves])
        self._residuals = np.stack([curve.residuals for curve in self.curves])
        self._parameter_steps = np.stack([padded(curve.parameters) for curve in self.curves])
        self._flop_lines = np.stack([padded(curve.flops) for curve in self.curves])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start all episodes, or those of ``options={"reset_mask": mask}``, bool (n,).

        Raises:
            ValueError: an unknown option, or a mask of another shape.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", np.ones(self.num_envs, bool))
        if options:
            raise ValueError(f"options {sorted(options)}: unknown; the only option of reset is 'reset_mask'")
        if np.shape(mask) != (self.num_envs,):
            raise ValueError(
                f"reset_mask of shape {np.shape(mask)}: must be one bool for each of {self.num_envs} episodes"
            )
        super().reset(seed=seed)
        self._started = True
        rows = np.flatnonzero(mask)
        self._start(rows)
        if self._history is not None:
            self._history.start(rows, self._error, self._parameters())
        return self._observations(), self._infos()

    def _start(self, rows: NDArray[np.int64]) -> None:
        """Start episodes: tick 0 is scored and D_1 has arrived."""
        if len(self.curves) > 1:
            self._curve[rows] = self.np_random.integers(len(self.curves), size=len(rows))
        for state in (self._stages, self._grown, self._flops):
            state[rows] = 0
        self._tick[rows] = self._pending[rows] = 1
        self._validation[:, rows] = np.nan
        self._error[rows] = self._cer[rows] = self._first_error[self._curve[rows]]

    def step(self, actions: Any) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Wait or train in every episode.

        Args:
            actions: integers (n,), or (n, 3) with ``actions="multi"``.

        Raises:
            RuntimeError: ``reset`` was not called.
            ValueError: the actions are of another shape.
        """
        if not self._started:
            raise RuntimeError("step() before reset(): there is no episode; call reset() first")
        if np.shape(actions) != self.action_space.shape:
            raise ValueError(f"actions of shape {np.shape(actions)}: must be {self.action_space.shape}")
        return self.advance(self.actions.flags(actions))

    def advance(
        self, flags: NDArray[np.bool_]
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Do a `step` with decisions instead of actions: (train, replay, grow), bool (n, 3)."""
        if self._history is not None:
            self._history.start(np.flatnonzero(self._tick == 1), self._error, self._parameters())
        spent = self._train(np.flatnonzero(flags[:, 0]), flags)
        if self._history is not None:
            self._history.add(self._tick, self._error, self._parameters(), spent, flags[:, 0])
        self._cer += self._error
        parts = reward_vector(self._error, spent, self._parameters())
        ended = self._tick == self.ticks
        self._pending += 1
        self._tick += 1
        infos: dict[str, Any] = {}
        if ended.any():
            rows = np.flatnonzero(ended)
            self._tick[rows] -= 1
            self._pending[rows] -= 1
            final = np.full(self.num_envs, None, dtype=object)
            for row, observation in zip(rows, self._observations(rows), strict=True):
                final[row] = observation
            infos = {"final_obs": final, "_final_obs": ended}
            infos["final_info"] = {"cer": np.where(ended, self._cer, 0.0), "_cer": ended}
            infos["_final_info"] = ended
            self._start(rows)
        infos |= self._infos(parts)
        return self._observations(), self.prices.reward(parts), ended, np.zeros_like(ended), infos

    def keep_history(self) -> EpisodeHistory:
        """Keep the course of the episodes from the next ``reset`` on, for `view`."""
        self._history = EpisodeHistory(self.num_envs, self.ticks)
        return self._history

    def render(self) -> tuple[Frame, ...] | None:  # type: ignore[override]
        """Draw each episode so far, as ``render_mode`` says.

        Raises:
            RuntimeError: ``reset`` was not called.
        """
        if self.render_mode is None:
            self._renderers[0].render(partial(self.view, 0))  # warns
            return None
        rows = enumerate(self._curve)
        return tuple(self._renderers[curve].render(partial(self.view, row)) for row, curve in rows)

    def view(self, row: int) -> View:
        """Return what a picture of an episode shows.

        Raises:
            RuntimeError: ``reset`` was not called since the history is kept.
        """
        if not self._started or self._history is None:
            raise RuntimeError("render() before reset(): there is no episode to draw; call reset() first")
        curve = int(self._curve[row])
        if curve not in self._fixed_waits:
            self._fixed_waits[curve] = self._simulate_fixed_waits(self.curves[curve])
        return View(
            self._title,
            self.ticks,
            {"agent": self._history.trace(row)},
            error_of=self._error_of,
            fixed_waits=self._fixed_waits[curve],
        )

    def _simulate_fixed_waits(self, curve: Curve) -> dict[int, NDArray[np.float64]]:
        """Return the mean errors of fixed waiting times at ticks 0..B; the random numbers are those of seed 0."""
        waits = shown_waits(self.ticks)
        of_episodes = np.repeat(waits, _EPISODES_OF_A_WAIT)
        episodes = SurrogateVectorEnv(len(of_episodes), curves=[curve])
        history = episodes.keep_history()
        episodes.reset(seed=0)
        flags = np.zeros((len(of_episodes), 3), bool)
        for tick in range(1, self.ticks + 1):
            flags[:, 0] = tick % of_episodes == 0
            episodes.advance(flags)
        means = history.errors.reshape(len(waits), _EPISODES_OF_A_WAIT, -1).mean(axis=1)
        return dict(zip(waits, means, strict=True))

    def _train(self, rows: NDArray[np.int64], flags: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Train in the episodes of these rows; return the FLOPs of all episodes."""
        spent = np.zeros(self.num_envs)
        if not len(rows):
            return spent
        curve, tick, stages = self._curve[rows], self._tick[rows], self._stages[rows]
        replay = flags[rows, 1]
        self._grown[rows] += flags[rows, 2] & (stages > 0)
        size = np.where(replay, tick, self._pending[rows])
        x = terms(logit(self._error[rows]), size, tick, stages, replay, self._grown[rows])
        single = len(self.curves) == 1
        y = x @ self._weights[0] if single else np.einsum("np,npk->nk", x, self._weights[curve])
        pool = (self._edges[curve] <= np.log(size)[:, None]).sum(1)
        y += self._residuals[curve, pool, self.np_random.integers(POOL_SIZE, size=len(rows))]
        y = np.clip(y, self._low[curve], self._high[curve])
        self._error[rows] = 1 / (1 + np.exp(-y[:, 0]))
        self._validation[2:, rows] = self._validation[:2, rows]
        self._validation[0, rows] = np.exp(y[:, 1])
        self._validation[1, rows] = np.clip(y[:, 2], 0, 1)
        line = self._flop_lines[curve, self._steps(rows)]
        spent[rows] = np.maximum(line[:, 0] + line[:, 1] * size, 0)
        self._flops += spent
        self._stages[rows] += 1
        self._pending[rows] = 0
        return spent

    def _steps(self, rows: Any) -> NDArray[np.int64]:
        return np.asarray(np.minimum(self._grown[rows], self._parameter_steps.shape[1] - 1))

    def _parameters(self, rows: Any = slice(None)) -> NDArray[np.float64]:
        return cast("NDArray[np.float64]", self._parameter_steps[self._curve[rows], self._steps(rows)])

    def _observations(self, rows: Any = slice(None)) -> Observations:
        loss, error, previous_loss, previous_error = self._validation[:, rows]
        return features(
            tick=self._tick[rows],
            ticks=self.ticks,
            pending=self._pending[rows],
            stages=self._stages[rows],
            validation_loss=loss,
            validation_error=error,
            previous_validation_loss=previous_loss,
            previous_validation_error=previous_error,
            guess_loss=self._guess_loss[self._curve[rows]],
            parameters=self._parameters(rows),
            first_parameters=self._parameter_steps[self._curve[rows], 0],
            flops=self._flops[rows],
        )

    def _infos(self, parts: NDArray[np.float64] | None = None) -> dict[str, Any]:
        present = np.ones(self.num_envs, bool)
        infos: dict[str, Any] = {"cer": self._cer.copy(), "_cer": present, "comp": self._flops.copy(), "_comp": present}
        if parts is not None:
            infos |= {"reward_vector": parts, "_reward_vector": present}
        return infos


class SurrogateEnv(gym.Env[Observations, Any]):
    """A single environment: one episode of `SurrogateVectorEnv`, with the same arguments but ``num_envs``.

    ``render_mode`` may also be ``"human"``, see `alma_env.AlmaEnv`.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES], "render_fps": FPS}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, *, render_mode: str | None = None, **keywords: Any) -> None:
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)
        self.vector = SurrogateVectorEnv(1, **keywords)
        if render_mode is not None:
            self.vector.keep_history()
        self.action_space = self.vector.single_action_space
        self.observation_space = self.vector.single_observation_space
        self.reward_space = self.vector.reward_space
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode.

        Raises:
            ValueError: options are given; this environment has none.
        """
        if options:
            raise ValueError(f"options {sorted(options)}: reset of this environment has none; leave them out")
        super().reset(seed=seed)
        observations, infos = self.vector.reset(seed=seed)
        self._running = True
        self._renderer.show(self._view)
        return observations[0], _first(infos)

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Wait or train.

        Raises:
            ValueError: the action is not in the space.
            RuntimeError: no episode runs; call ``reset``.
        """
        if not self._running:
            raise RuntimeError("step() without an episode: call reset() first")
        if not self.action_space.contains(action):
            raise ValueError(f"action={action!r}: not in {self.action_space}")
        observations, rewards, ended, _, infos = self.vector.step(np.asarray(action)[None])
        self._running = not ended[0]
        self._renderer.show(self._view)
        observation = observations[0] if self._running else infos["final_obs"][0]
        info = _first(infos) if self._running else _first(infos) | _first(infos["final_info"])
        return observation, float(rewards[0]), not self._running, False, info

    def render(self) -> Frame:
        """Draw the episode so far, as ``render_mode`` says.

        Raises:
            RuntimeError: there is no episode: call ``reset``.
        """
        return self._renderer.render(self._view)

    def close(self) -> None:
        """Give the terminal back, if ``render_mode`` is ``"human"``. The environment can be used again."""
        self._renderer.close()

    def _view(self) -> View:
        return self.vector.view(0)


def _first(infos: dict[str, Any]) -> dict[str, Any]:
    names = (name for name in infos if f"_{name}" in infos and not name.startswith("final_"))
    return {name: infos[name][0] if np.ndim(infos[name]) > 1 else float(infos[name][0]) for name in names}
