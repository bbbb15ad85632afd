"""The decision environment: a learner on a real stream, with numeric observations and few actions.

Mega-batches, training and scoring are those of `alma_env.AlmaEnv` and `agents.AnytimeAgent`; the action replaces the
agent's policy.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import alma_env
from agents.analysis.measures import ERROR_RATE, measure_of
from agents.analysis.prices import Prices, reward_vector
from agents.catalogue.build import make
from agents.catalogue.data_facts import split_keywords
from agents.catalogue.methods import method_for
from agents.catalogue.recipes import recipe_for
from agents.catalogue.resolve import UnknownHyperparameterError
from agents.learners.anytime import AnytimeAgent
from agents.policies import Decision, Progress
from agents.policies.actions import Actions
from agents.policies.learned.features import feature_space, features_of
from agents.rl.environments.checks import checked_action, checked_seed, refuse_options
from agents.rl.environments.keywords import keywords_of_class, unknown_keyword
from agents.rl.environments.rewards import Reward
from agents.rl.models import fixed_waits
from agents.runs.episode import play_tick
from agents.runs.run import config_of
from agents.training.forked import use_one_thread_if_forked
from alma_env.rendering.drawn import Drawn
from alma_env.rendering.renderer import FPS, MODES, Renderer
from alma_env.rendering.view import FixedWaits, Trace, View

if TYPE_CHECKING:
    from gymnasium import spaces
    from torch import nn

    from alma_env import Ledger


def decided_by_actions(now: Progress) -> Decision:
    """Policy of an agent whose decisions are the actions of a decision environment; it is never called."""
    raise RuntimeError(f"tick={now.tick}: a decision environment has no policy; give actions to step()")


class WaitEnv(Drawn, gym.Env[NDArray[np.float32], Any]):
    """Decisions when a learner on a real stream waits and trains (ALMA paper, sections 3 and 5).

    ## Action Space
    The keyword ``actions`` chooses one of three spaces:

    * ``"train"``, ``Discrete(2)``: 0 waits, 1 trains on the gathered mega-batches.
    * ``"multi"``, ``MultiDiscrete([2, 2, 2])``: train, replay all mega-batches so far, grow before training.
    * ``"flat"``, ``Discrete(5)``: wait, train, train with replay, train after growth, train with replay after growth.

    Replay and growth have no effect while waiting. Growth has no effect before the first training, or if the learner
    cannot grow. ``action_masks()`` returns which actions have an effect of their own, in the form of sb3-contrib's
    MaskablePPO: bool (2,), (6,) or (5,), see `agents.policies.actions.Actions.masks`.

    ## Observation Space
    ``Box`` float32 (13,), bounded; `agents.policies.learned.features.FEATURES` has names, bounds and formulas. No
    feature depends on the test set. The observation after the last tick describes the end of the episode.

    ## Rewards
    −(error + ``flops_price`` · teraFLOPs since the tick before + ``parameter_price`` · millions of parameters). The
    error is the error on the test set. With ``reward_on="validation"`` it is the error on the validation parts of all
    mega-batches, future ones included, on which no learner trains; a policy learned on it is not tuned on the test set.
    ``info["vector_reward"]``, float64 (3,), holds −(error, teraFLOPs, millions of parameters), MO-Gymnasium's
    convention. With ``reward="vector"``, which the ids ``…-Wait-MO-v0`` set, this vector is the reward, and
    ``reward_space`` is its space.

    ## Starting State
    ``reset(seed=s)`` starts the stream of seed ``s`` with a new learner of seed ``s``, as ``alma run --seeds s`` does;
    without a seed it draws one. The learner has gathered D_1, and the first action decides about D_1.

    ## Episode End
    *Termination:* after tick B, or if a budget of the stream is exceeded; the reward of this step then includes the
    errors and parameters of all remaining ticks. *Truncation:* never: a library that adds the value of the last
    observation to the reward of a truncated episode would count these ticks twice.

    ## Arguments
    * ``stream``: id of the stream's environment, such as ``"MNIST-ALMA-v0"``; the registered ids set it.
    * ``learner``: id of the learner, see ``alma agents``.
    * ``actions``, ``reward``, ``flops_price``, ``parameter_price``, ``reward_on``: see above.
    * ``replay``, ``grow``: with ``actions="train"``, whether every training replays, and whether it grows first.
    * ``render_mode``: ``"human"``, ``"rgb_array"``, ``"ansi"`` or None, as for `alma_env.AlmaEnv`. The fixed waits are
      those of the recorded runs that come with the package, if runs of this learner and stream were recorded.
    * others: keywords of the stream's environment, such as ``ticks``, or of ``agents.make``, such as ``width``.

    ``info`` holds ``tick``, ``ticks``, ``error`` on the test set, ``parameters``, ``comp``, ``refused`` as in AlmaEnv,
    and ``cer``, the sum of errors so far. ``ledger`` and ``ledger.score()`` always report the test set.

    An environment can be pickled, also during an episode. In a forked process it trains with one thread.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES], "render_fps": FPS}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        stream: str,
        learner: str = "sm",
        *,
        actions: str = "train",
        replay: bool = False,
        grow: bool = False,
        reward: str = "scalar",
        flops_price: float = 0.0,
        parameter_price: float = 0.0,
        reward_on: str = "test",
        render_mode: str | None = None,
        **keywords: Any,
    ) -> None:
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)
        if reward_on not in ("test", "validation"):
            raise ValueError(f"reward_on={reward_on!r}: must be 'test' or 'validation'; use reward_on='test'")
        use_one_thread_if_forked()
        self._arguments = {"stream": stream, "learner": learner, "actions": actions, "replay": replay, "grow": grow}
        self._arguments |= {"reward": reward, "flops_price": flops_price, "parameter_price": parameter_price}
        self._arguments |= {"reward_on": reward_on, **keywords}
        for name in ("policy", "wait", "growth", "seed"):
            if name in keywords:
                raise ValueError(
                    f"{name}={keywords[name]!r}: the actions decide when to train and grow, and reset(seed=...) gives "
                    f"the seed; leave {name} out"
                )
        protocol, self._hyperparameters = split_keywords(stream, keywords)
        self.reward: Any = Reward(reward, Prices(flops_price, parameter_price))
        self.alma = alma_env.make(stream, **protocol)
        self.learner = learner
        self.reward_on = reward_on
        method = method_for(learner, recipe_for(self.alma.data.name).backbone)
        if method.always:
            raise ValueError(
                f"learner={learner!r}: it trains at every tick, so there is no decision; choose another learner"
            )
        self.method = method
        self.actions: Any = Actions(actions, method.grows, replay, grow)
        self.action_space = self.actions.space()
        self.observation_space = cast("gym.Space[NDArray[np.float32]]", feature_space())
        self._seed = 0  # of the learner
        try:
            self.agent = self._agent()  # a wrong keyword raises here
        except UnknownHyperparameterError as error:
            own = keywords_of_class(type(self))
            raise unknown_keyword(error.name, own, error.known, f"{error.reason}; ") from error
        self._error = 0.0  # of the deployed predictor, on the data of `reward_on`
        self._cer = 0.0

    @property
    def ledger(self) -> Ledger:
        """The ledger of the episode, scored on the test set."""
        return self.alma.ledger

    @property
    def reward_space(self) -> spaces.Box:
        """The space of a reward with ``reward="vector"``; an AttributeError otherwise."""
        space: spaces.Box = self.reward.space
        return space

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are allowed at this tick, see `agents.policies.actions.Actions.masks`."""
        agent = self.agent
        mask: NDArray[np.bool_] = self.actions.masks(tick=agent.tick, pending=agent.pending, stages=agent.stages)
        return mask

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a new stream with a new learner.

        Raises:
            TypeError: the seed is not an integer.
            ValueError: options are given; this environment has none.
        """
        refuse_options(options)
        seed = checked_seed(seed)
        super().reset(seed=seed)
        self._draw_prices()
        use_one_thread_if_forked()
        self._seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self.agent = self._agent()
        arrived, _ = self.alma.reset(seed=self._seed, options={"predictor": self.agent.predictor})
        self.agent.gather(arrived)
        self._error = self._error_of(self.agent.predictor)
        self._cer = 0.0
        self._renderer.show(self._view)
        return self._observation(), self._info(rows=1)

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """Wait or train, answer, and gather the next mega-batch.

        Raises:
            ValueError: the action is not in the space.
            RuntimeError: no episode runs; call ``reset``.
        """
        if self.alma.tick < 0 or self.alma.done:
            raise RuntimeError(f"step() at tick {self.alma.tick}: no episode runs; call reset() first")
        action = checked_action(action, self.action_space)
        answered = len(self.ledger)
        carry_out = partial(self.agent.carry_out, self.actions.decision(action))
        predictor, (arrived, _, terminated, truncated, _) = play_tick(self.alma, carry_out)
        if predictor is not None and not self.ledger[-1].refused:
            self._error = self._error_of(predictor)
        ended = terminated or truncated  # a broken budget ends the decisions: nothing is left to be rewarded
        if not ended:
            self.agent.gather(arrived)
        info = self._info(rows=len(self.ledger) - answered)
        reward = self.reward(info["vector_reward"])
        self._renderer.show(self._view)
        return self._observation(), reward, ended, False, info

    @cached_property
    def fixed_waits(self) -> FixedWaits:
        """The errors of fixed waiting times at ticks 0..B, for pictures; another dictionary may be assigned."""
        return fixed_waits.recorded(config_of(self.alma, self.agent, seed=0))

    def _view(self) -> View:
        if self.alma.tick < 0:
            raise RuntimeError("render() before reset(): there is no episode to draw; call reset() first")
        assert self.alma.spec is not None
        name = self.alma.spec.id if self.spec is None else self.spec.id
        return View(
            f"{name}, {self.learner}",
            self.alma.ticks,
            {"agent": Trace.of_ledger(self.ledger)},
            measure_of(self.alma.protocol()) is ERROR_RATE,
            fixed_waits=self.fixed_waits,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments and the state of the episode, without data other than arrays among the arguments."""
        plain = {name: value for name, value in vars(self).items() if name not in ("alma", "agent")}
        started = self.alma.tick >= 0
        episode = {"alma": self.alma.state_dict(), "agent": self.agent.state_dict()} if started else {}
        return plain | {"_episode": episode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["_arguments"])  # type: ignore[misc] # it loads the data and makes a learner
        episode = state.pop("_episode")
        vars(self).update(state)
        if episode:
            self.agent = self._agent()
            self.alma.load_state_dict(episode["alma"])
            self.agent.load_state_dict(episode["agent"], self.alma.megabatch)

    def _draw_prices(self) -> None:
        """Draw the prices of an episode; here all episodes have the same."""

    def _agent(self) -> AnytimeAgent:
        return make(self.learner, self.alma, policy=decided_by_actions, seed=self._seed, **self._hyperparameters)

    def _error_of(self, predictor: nn.Module) -> float:
        return self.alma.validation_error(predictor) if self.reward_on == "validation" else self.ledger[-1].error

    def _observation(self) -> NDArray[np.float32]:
        return features_of(dataclasses.replace(self.agent.progress(), flops=self.alma.meter.total))

    def _info(self, rows: int) -> dict[str, Any]:
        last, new = self.ledger[-1], self.ledger.rows[-rows:]
        self._cer += sum(row.error for row in new)
        return {
            "tick": last.tick,
            "ticks": self.alma.ticks,
            "error": last.error,
            "parameters": last.parameters,
            "comp": self.ledger.comp,
            "cer": self._cer,
            "refused": last.refused,
            "vector_reward": self._reward_vector(
                self._error * rows, sum(row.comp for row in new), sum(row.parameters for row in new)
            ),
        }

    def _reward_vector(self, error: float, flops: int, parameters: int) -> NDArray[np.float64]:
        return reward_vector(error, flops, parameters)
