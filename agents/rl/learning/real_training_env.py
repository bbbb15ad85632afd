"""`NextTrainingVectorEnv` on a real stream: an episode is a run, and a step leads to the next training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.choices import CHOICES
from agents.policies.learned.next_training import WITH_GROWTH, WITHOUT_GROWTH, Menu, NextTraining
from agents.policies.learned.priced_features import feature_space
from agents.policies.learned.schedule import at_training
from agents.rl.environments.checks import checked_action, checked_seed
from agents.rl.environments.decision_env import DecisionEnv
from agents.rl.environments.run_keywords import keywords_of
from agents.rl.models.training_model import TrainingModel
from agents.rl.recorded.recording import Recording
from agents.rl.surrogates.reference_costs import ReferenceCosts
from agents.runs.run import config_of

_WAIT = 0  # the number of this choice in `CHOICES`
_NUMBERS = {(one.train, one.replay, one.restart, one.grow): number for number, one in enumerate(CHOICES)}


@dataclass(frozen=True)
class RealStream:
    """A learner on a real stream, with the settings of recorded runs.

    Attributes:
        env: id of the stream's environment.
        learner: id of the learner.
        keywords: the width, and the settings that differ from those of the stream's id and its recipe.
        reward_on: data of the error in the reward, see `agents.rl.WaitEnv`.
        references: what simple schedules cost on a model of the recorded runs, of one model.
    """

    env: str
    learner: str
    keywords: Mapping[str, Any]
    reward_on: str
    references: ReferenceCosts

    @classmethod
    def of(cls, recording: Recording, model: TrainingModel, reward_on: str = "validation") -> RealStream:
        """Return the stream of a recorded run.

        Args:
            recording: one of the runs.
            model: the model that was fitted to the runs, with the same ``reward_on``.
            reward_on: ``validation`` or ``test``.

        Raises:
            ValueError: the stream is not one of the paper's.
        """
        keywords = {"width": recording.width, **keywords_of(recording)}
        return cls(recording.env, recording.learner, keywords, reward_on, ReferenceCosts.of([model]))

    def __str__(self) -> str:
        """Return stream, learner and width as text."""
        return f"{self.env}: {self.learner} {self.keywords['width']}"

    def require_same(self, recording: Recording) -> None:
        """Make the environment, and compare the settings of its runs with those of a recorded run.

        Raises:
            ValueError: a setting differs, such as the digest of the data.
            DataUnavailableError: the data of the stream are missing.
        """
        env = RealTrainingEnv(self).decisions
        ours = config_of(env.alma, env.agent, recording.seed).learner
        for name, value in recording.run_config.learner.items():
            if ours.get(name) != value:
                raise ValueError(
                    f"{self}: {name} is {value} in the recorded runs and {ours.get(name)} here; real runs must be "
                    "like the recorded ones: record runs with these data and this version, with `alma surrogate record`"
                )


class RealTrainingEnv(gym.Env[NDArray[np.float32], np.int64]):
    """Real runs of a learner; each step goes on to the next training.

    An episode is the run of a `agents.policies.learned.schedule.LearnedSchedule` that makes the same decisions: its
    trainings, errors and sizes are equal to the last bit. (On a stream of one mega-batch, that schedule asks its rule
    instead.) The FLOPs of deciding are not charged.

    * **Actions**: integers, numbers of the decisions of ``menu``; to train no more ends the episode, and so does a
      later training that would be after the last tick. A first training that would be after it is at the last tick.
    * **Observations**: those of `DecisionEnv`, float32 (18,), at the tick of the last training with nothing gathered.
    * **Rewards**: those of `DecisionEnv`, summed over the ticks of the step, and divided by what the best of a few
      simple schedules costs on the model of the stream at the episode's prices. So they have the scale of
      `NextTrainingVectorEnv`.

    ``reset(seed=s)`` starts the run of ``alma run --seeds s``; the prices of a range depend on this seed, too. ``info``
    is that of `DecisionEnv`, without the mask; ``vector_reward`` is the sum over the ticks of the step.

    Args:
        stream: learner and stream.
        pass_price: errors that a full pass costs, or a range from which each episode draws.
        memory_price: errors per tick that the untrained size costs, or a range.
        menu: the decisions, see `agents.policies.learned.next_training`; by default with growth if the learner can
            grow.

    Raises:
        ValueError: wrong prices or settings.
        DataUnavailableError: the data of the stream are missing.
    """

    def __init__(
        self,
        stream: RealStream,
        *,
        pass_price: float | tuple[float, float] = 0.0,
        memory_price: float | tuple[float, float] = 0.0,
        menu: Menu | None = None,
    ) -> None:
        self.decisions = DecisionEnv(
            stream.env,
            stream.learner,
            pass_price=pass_price,
            memory_price=memory_price,
            reward_on=stream.reward_on,
            **stream.keywords,
        )
        self.stream = stream
        self.menu = menu or (WITH_GROWTH if self.decisions.grows else WITHOUT_GROWTH)
        self.action_space = cast("gym.Space[np.int64]", spaces.Discrete(self.menu.stop + 1))
        self.observation_space = cast("gym.Space[NDArray[np.float32]]", feature_space())
        self._last = 0  # tick of the last training
        self._scale = 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a new run, with new prices where ranges are given.

        Raises:
            TypeError: the seed is not an integer.
            ValueError: options are given; this environment has none.
        """
        seed = checked_seed(seed)
        super().reset(seed=seed)
        _, info = self.decisions.reset(seed=seed, options=options)
        self._last = 0
        prices = info["pass_price"], info["memory_price"]
        self._scale = float(self.stream.references(np.zeros(1, np.int64), *prices)[0])
        return self._observation(), _without_mask(info)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Wait until the tick of the next training, and train.

        Raises:
            ValueError: the action is not in the space.
            RuntimeError: no episode runs; call ``reset``.
        """
        action = checked_action(action, self.action_space)
        due = self.menu.next_ticks(action, self._last, self.decisions.alma.ticks)
        total, vectors, trained, terminated = 0.0, np.zeros(3), False, False
        info: dict[str, Any] = {}
        while not (trained or terminated):
            tick = self.decisions.agent.tick
            trained = tick == due
            choice = _choice_of(self.menu.trainings[action]) if trained else _WAIT
            _, reward, terminated, _, info = self.decisions.step(choice)
            total += reward
            vectors += info["vector_reward"]
            self._last = tick if trained else self._last
        return (
            self._observation(),
            total / self._scale,
            terminated,
            False,
            _without_mask(info) | {"vector_reward": vectors},
        )

    def _observation(self) -> NDArray[np.float32]:
        return self.decisions.seen_at(at_training(self.decisions.agent.progress()))


def _choice_of(training: NextTraining) -> int:
    """Return the number of the choice in `CHOICES` that does this training."""
    return _NUMBERS[True, training.replay, training.restart, training.grow]


def _without_mask(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name != "action_mask"}
