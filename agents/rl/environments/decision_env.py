"""The second version of the decision environment: when to wait, replay, restart, grow and stop, at given prices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agents.analysis.prices import Prices
from agents.policies import Decision, Progress
from agents.policies.choices import allowed_choices, choice_space, decision_of
from agents.policies.learned.priced_features import feature_space, features_of
from agents.rl.environments.full_pass import full_pass_flops
from agents.rl.environments.price_range import PriceRange
from agents.rl.environments.rewards import Reward
from agents.rl.environments.wait_env import WaitEnv
from alma_env.errors import ArgumentTypeError


@dataclass(frozen=True)
class _Choices:
    """The choices of `agents.policies.choices`, in the place of `agents.policies.actions.Actions`."""

    ticks: int
    grows: bool

    def decision(self, action: Any) -> Decision:
        return decision_of(action, self.ticks, grows=self.grows)

    def masks(self, **state: Any) -> NDArray[np.bool_]:
        return allowed_choices(**state, grows=self.grows)


class DecisionEnv(WaitEnv):
    """All decisions of a learner on a real stream: wait, train, replay, restart, grow; stopping is waiting to the end.

    ## Action Space
    ``Discrete(10)``; `agents.policies.choices.CHOICES` names them: wait; train on the gathered mega-batches, also with
    replay of the newest tenth of the stream or of everything; the same three from a new random initialisation; the same
    three after a growth step. ``action_masks()`` and ``info["action_mask"]``, bool (10,), say which choices are
    not void; a void choice does the same as an unmasked one. If the last training was in the first tenth of the
    stream, replay of the newest tenth and of everything are the same, and neither is masked.

    ## Observation Space
    ``Box`` float32 (18,), bounded; `agents.policies.learned.priced_features.FEATURES` has names, bounds and formulas.
    The prices are part of it, and the names of stream and learner are not: one policy can serve all of them.

    ## Rewards
    −(error + ``pass_price`` · full passes since the tick before + ``memory_price`` · size). A *full pass* is the FLOPs
    of training the untrained network once on each mega-batch, as measured on D_1 of the stream of seed 0, and *size* is
    the number of parameters divided by that of the untrained predictor. A full pass thus costs ``pass_price`` errors,
    which is the unit of the CER: with ``pass_price=40`` it pays to train on every mega-batch once if this saves 40
    errors.
    ``info["vector_reward"]``, float64 (3,), holds −(error, full passes, size).

    ## Arguments
    * ``stream``, ``learner``, ``reward_on`` and others: those of `WaitEnv`.
    * ``pass_price``, ``memory_price``: a number, or two numbers between which each episode draws (log-uniformly).

    Starting state, episode end and the rest of ``info`` are those of `WaitEnv`; ``info`` also holds ``pass_price`` and
    ``memory_price`` of the episode.

    Raises:
        ValueError: a price is negative or infinite.
        TypeError: a keyword of `WaitEnv` that this environment does not have, such as ``flops_price``.
    """

    def __init__(
        self,
        stream: str,
        learner: str = "sm",
        *,
        pass_price: float | tuple[float, float] = 0.0,
        memory_price: float | tuple[float, float] = 0.0,
        reward_on: str = "test",
        render_mode: str | None = None,
        **keywords: Any,
    ) -> None:
        for name in ("actions", "replay", "grow", "reward", "flops_price", "parameter_price"):
            if name in keywords:
                raise ArgumentTypeError(
                    f"unexpected keyword argument {name!r}: an argument of Wait-v0; each action decides about replay "
                    "and growth, and the prices are pass_price and memory_price"
                )
        self.price_ranges = PriceRange.of_prices(pass_price=pass_price, memory_price=memory_price)
        super().__init__(stream, learner, reward_on=reward_on, render_mode=render_mode, **keywords)
        self._arguments = {"stream": stream, "learner": learner, "pass_price": pass_price}
        self._arguments |= {"memory_price": memory_price, "reward_on": reward_on, **keywords}
        self.grows = self.method.grows
        self.actions = _Choices(self.alma.ticks, self.grows)
        self.pass_price = self.memory_price = 0.0  # of the episode
        self.action_space = choice_space()
        self.observation_space = cast("gym.Space[NDArray[np.float32]]", feature_space())

    def _draw_prices(self) -> None:
        self.pass_price, self.memory_price = (
            float(one.draw(self.np_random, 1)[0]) for one in self.price_ranges.values()
        )
        self.reward = Reward("scalar", Prices(self.pass_price, self.memory_price))  # full passes, not teraFLOPs

    @cached_property
    def pass_flops(self) -> int:
        """FLOPs of a full pass, see `full_pass_flops`; all episodes have the same."""
        return full_pass_flops(self.learner, self.alma, self._hyperparameters)

    def _observation(self) -> NDArray[np.float32]:
        return self.seen_at(self.agent.progress())

    def seen_at(self, progress: Progress) -> NDArray[np.float32]:
        """Return the observation for a progress at the prices of the episode, float32 (18,)."""
        prices = {"pass_price": self.pass_price, "memory_price": self.memory_price}
        return np.asarray(features_of(progress, **prices, grows=self.grows, free_growth=self.method.free_growth))

    def _reward_vector(self, error: float, flops: int, parameters: int) -> NDArray[np.float64]:
        first = self.ledger[0].parameters
        return -np.array([error, flops / self.pass_flops, parameters / first])

    def _info(self, rows: int) -> dict[str, Any]:
        return super()._info(rows) | {
            "pass_price": self.pass_price,
            "memory_price": self.memory_price,
            "action_mask": self.action_masks(),
        }
