"""The vectorised surrogate: decisions on fitted learning curves, in thousands of episodes at once.

Spaces and rewards are those of `WaitEnv`; `agents.rl.models.learning_curve` models the effect of a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from agents.analysis.prices import Prices, reward_vector
from agents.policies.actions import Actions
from agents.policies.learned.features import feature_space, features, write_waiting
from agents.rl.environments.checks import checked_count
from agents.rl.environments.keywords import refuse_unknown
from agents.rl.environments.rewards import Reward
from agents.rl.models import fixed_waits
from agents.rl.models.learning_curve import Curve, curves_for
from agents.rl.models.stacked_curves import StackedCurves
from agents.rl.recorded.selection import stream_of
from agents.rl.surrogates.checks import (
    checked_fits,
    require_recorded,
)
from agents.rl.surrogates.episodes import EpisodesVectorEnv, Observations


class SurrogateVectorEnv(EpisodesVectorEnv):
    """Many episodes on fitted learning curves; see `WaitEnv` for actions, observations, rewards and action masks.

    With several curves, each episode draws one of them. ``reset(seed=s)`` seeds all random numbers.
    ``reset(options={"reset_mask": mask})`` starts some episodes again.

    ``num_envs`` is the number of episodes. ``stream``, ``learner``, ``width`` and ``recorded`` are the arguments of
    `curves_for`, which are not used if ``curves`` are given; with ``stream=None``, the stream is the stream of the
    recorded runs, as in the ids ``Recorded-ALMA-Wait-Surrogate-…``. ``actions``, ``replay``, ``grow``, ``reward``,
    ``flops_price``, ``parameter_price`` and ``reward_on`` are those of `WaitEnv`; with ``curves``, ``reward_on`` has no
    effect, and the error is the one to which the curves were fitted.

    The infos are those of `WaitEnv`, without ``refused``. With ``reward_on="validation"``, ``error`` and ``cer`` are
    those of the validation parts.

    ``autoreset_mode`` says when a finished episode starts again, as in Gymnasium: ``SAME_STEP``, in the same step, and
    the infos have ``final_obs`` and ``final_info``; ``NEXT_STEP``, in the next step, which ignores the action and has
    reward 0; ``DISABLED``, at ``reset`` with a mask. It is an ``AutoresetMode`` or its value, such as ``"NextStep"``.

    ``render_mode`` is ``"rgb_array"``, ``"ansi"`` or None. `render` returns one picture for each episode. With
    ``SAME_STEP`` an episode that has ended is drawn until the next one answers a tick.

    Raises:
        ValueError: no runs of this stream, learner and width were recorded; or the actions replay or grow, but no
            recorded run did; or the mode is unknown.
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
        curves: Sequence[Curve] | None = None,
        actions: str = "train",
        replay: bool = False,
        grow: bool = False,
        reward: str = "scalar",
        flops_price: float = 0.0,
        parameter_price: float = 0.0,
        reward_on: str = "test",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        **keywords: Any,
    ) -> None:
        refuse_unknown(type(self), keywords)
        num_envs = checked_count("num_envs", num_envs, "episode", 1)
        self.reward: Any = Reward(reward, Prices(flops_price, parameter_price))
        if curves is None:
            stream = stream or stream_of(recorded)
            curves = curves_for(stream, learner, width, recorded, reward_on)
            self._captions = f"surrogate of {stream}, {learner}", reward_on
        else:
            self._captions = "fitted curves", ""
        self.curves = checked_fits("curves", curves, Curve)
        # With `grow`, `require_recorded` asks for curves that grow, and its message has the remedy.
        self.actions = Actions(actions, grow or all(curve.grows for curve in self.curves), replay, grow)
        require_recorded(self.curves, actions, replay, grow)
        self._stacked = StackedCurves(self.curves)
        self._set_up(num_envs, self.actions.space(), feature_space(), autoreset_mode, render_mode)

    def _first_errors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the errors of the untrained predictors, float64 (n,)."""
        return np.asarray(self._stacked.first_error[self._curve[rows]])

    def step(self, actions: Any) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Wait or train in every episode.

        Args:
            actions: integers (n,), or (n, 3) with ``actions="multi"``.

        Raises:
            RuntimeError: ``reset`` was not called; or the mode is DISABLED and an episode has ended.
            ValueError: the actions are of another shape, or not in the space.
        """
        return self.advance(self.actions.flags(self._checked(actions)))

    def advance(self, flags: Any) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Do a `step` with decisions instead of actions: (train, replay, grow), bool (n, 3)."""
        flags = np.asarray(flags, bool)
        return self._advance(flags[:, 0], partial(self._train, flags=flags))

    def _vectors(self, spent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reward vectors (n, 3) of a tick on which the episodes spent these FLOPs."""
        return reward_vector(self._error, spent, self._parameters())

    def _rewards(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rewards of reward vectors."""
        return np.asarray(self.reward(vectors))

    def _simulate_waits(self, curve: int) -> dict[int, NDArray[np.float64]]:
        """Return the mean errors of fixed waits on a curve at ticks 0..B."""
        return fixed_waits.simulated(self._stacked, curve)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are allowed in every episode, bool (n, actions), see `Actions.masks`."""
        return self.actions.masks(tick=self._tick, pending=self._pending, stages=self._stages)

    def _train(self, rows: NDArray[np.int64], flags: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Train in the episodes of these rows; return the FLOPs of all episodes."""
        spent = np.zeros(self.num_envs)
        if not len(rows):
            return spent
        curve, tick, stages, pending = (of[rows] for of in (self._curve, self._tick, self._stages, self._pending))
        self._grown[rows] += flags[rows, 2] & (stages > 0)
        grown = self._grown[rows]
        size = np.where(flags[rows, 1], tick, pending)
        self._validation[2:, rows] = self._validation[:2, rows]
        self._error[rows], self._validation[0, rows], self._validation[1, rows] = self._stacked.outcome(
            curve, self._error[rows], size, tick, stages, size > pending, grown, self.np_random
        )
        spent[rows] = self._stacked.flops(curve, size, grown)
        self._flops += spent
        self._stages[rows] += 1
        self._pending[rows] = 0
        self._changed[rows] = True
        return spent

    def _show_waiting(self) -> None:
        write_waiting(self._shown, tick=self._tick, ticks=self.ticks, pending=self._pending)

    def _features(self, rows: Any) -> Observations:
        """Return the observations of these episodes."""
        return features(**self._progress(rows))
