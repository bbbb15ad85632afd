"""Learning a policy with PPO, A2C or DQN of Stable-Baselines3, on a surrogate or on a real stream.

alma policy train MNIST-ALMA-Wait-Surrogate-v0 --set width=4,64 --out waiting.zip
alma run MNIST-ALMA-v0 --width 4 64 --policy waiting.zip
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium import spaces

from agents.policies.validation import check_types
from agents.rl.environments.checks import checked_count
from agents.rl.environments.keywords import class_of, keywords_of_class, refuse_unknown
from agents.rl.models.training_model import require_all_decisions
from agents.rl.registration import require_trainable
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.episodes import EpisodesVectorEnv
from alma_env.errors import did_you_mean, how_to_install
from alma_env.integers import require_integer

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv

ALGORITHMS = ("ppo", "a2c", "dqn")

# An episode is one stream. All rewards are negative, and nearly all of an episode's return lies in ticks that the
# current decision does not affect. Returns are therefore normalised, and discounted over about a third of a stream.
_DISCOUNT_HORIZON = 1 / 3

_GIVEN = ("policy", "env", "seed", "device", "tensorboard_log", "_init_setup_model")  # keywords of an algorithm


def train_policy(
    env_id: str,
    *,
    algorithm: str = "ppo",
    steps: int = 2_000_000,
    episodes_at_once: int | None = None,
    seed: int = 0,
    progress: bool = False,
    tensorboard: Path | None = None,
    settings: dict[str, Any] | None = None,
    keep: Callable[[BaseAlgorithm], object] | None = None,
    **keywords: Any,
) -> BaseAlgorithm:
    """Train a policy.

    ``agents.rl.save_policy(model, path)`` writes the file that `LearnedPolicy` and ``alma run --policy`` read.

    Args:
        env_id: a decision environment or a surrogate, such as ``MNIST-ALMA-Wait-Surrogate-v0``.
        algorithm: ``ppo``, ``a2c`` or ``dqn``.
        steps: decisions to learn from, in all episodes together.
        episodes_at_once: episodes of the surrogate that run at once, by default 512, or 64 for DQN, which learns once
            per number of steps of all episodes. On a real stream one episode runs at a time.
        seed: of the network's weights, the exploration and the episodes.
        progress: whether to show a progress bar.
        tensorboard: folder for TensorBoard's event files.
        settings: keywords of the algorithm; they replace the defaults of this function.
        keep: called with the model so far if a failure or Ctrl-C ends the learning after an update.
        keywords: keywords of the environment.

    Raises:
        ValueError: an unknown algorithm or environment, a keyword with a wrong value, a setting that the algorithm
            does not have, a surrogate of v1 fitted to runs without replay or restarts, or Stable-Baselines3 is not
            installed.
        TypeError: steps or seed are not integers.
        ArgumentTypeError: the surrogate has no such keyword.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm={algorithm!r}: must be one of {', '.join(ALGORITHMS)}")
    steps = checked_count("steps", steps, "decision", 2_000_000)
    seed = require_seed(seed)
    check_types({"episodes_at_once": episodes_at_once}, {"episodes_at_once": int | None}, {"episodes_at_once": 512})
    if episodes_at_once is not None and episodes_at_once < 1:
        raise ValueError(f"episodes_at_once={episodes_at_once}: must be at least 1 episode; the default is 512")
    try:
        import stable_baselines3
        import torch
        from stable_baselines3.common.vec_env import VecNormalize

        from agents.rl.learning.sb3 import SurrogateVecEnv, learn
    except ImportError as error:
        raise ValueError(f"the package stable-baselines3 is missing; {how_to_install('rl')}") from error
    learner = getattr(stable_baselines3, algorithm.upper())
    _require_settings(settings or {}, learner)
    if episodes_at_once is None:
        episodes_at_once = 64 if algorithm == "dqn" else 512
    env, ticks = _vectorised(env_id, episodes_at_once, keywords)
    if algorithm == "dqn" and not isinstance(env.action_space, spaces.Discrete):
        raise ValueError(
            f"algorithm='dqn' with the action space {env.action_space}: must be Discrete, because DQN learns a value "
            "of each action; use actions='flat', or algorithm='ppo'"
        )
    discount = 1 - 1 / max(_DISCOUNT_HORIZON * ticks, 2)
    chosen: dict[str, Any] = {"gamma": discount, **_settings(algorithm, steps, ticks, env.num_envs), **(settings or {})}
    normalised = VecNormalize(env, norm_obs=False, gamma=chosen["gamma"])  # it scales by the spread of the returns
    model: BaseAlgorithm = learner(
        "MlpPolicy",
        normalised,
        seed=seed,
        device="cpu",  # a network of two layers of 64 units
        tensorboard_log=None if tensorboard is None else str(tensorboard),
        **chosen,
    )
    threads = torch.get_num_threads()
    if isinstance(env.unwrapped, SurrogateVecEnv):  # on a real stream, the learner that trains uses the threads
        torch.set_num_threads(1)  # the policy is so small that threads wait for each other: minutes on a busy machine
    try:
        learn(model, steps, progress=progress, keep=lambda: keep and keep(model))
    finally:
        torch.set_num_threads(threads)
    return model


def require_seed(seed: Any) -> int:
    """Return a seed as an int; raise TypeError or ValueError if NumPy or Stable-Baselines3 cannot use it."""
    number = require_integer(seed, "seed")
    if not 0 <= number < 2**32:
        raise ValueError(f"seed={number}: must be from 0 to 2³² − 1; use seed=0")
    return number


def _require_settings(settings: Iterable[str], algorithm: Callable[..., object]) -> None:
    """Raise ValueError if the algorithm has no such keyword, or `train_policy` gives it itself."""
    known = [name for name in inspect.signature(algorithm).parameters if name not in _GIVEN]
    for name in settings:
        if name not in known:
            raise ValueError(
                f"settings={{{name!r}: …}}: must be keywords of the algorithm that train_policy does not give itself: "
                f"{', '.join(known)}{did_you_mean(name, known)}"
            )


def _settings(algorithm: str, steps: int, ticks: int, episodes: int) -> dict[str, Any]:
    """Return the settings with the best return, without exploration, on the surrogates of Digits and MNIST."""
    from stable_baselines3.common.utils import LinearSchedule

    falling = LinearSchedule(start=1e-3, end=0.0, end_fraction=1.0)
    if algorithm == "dqn":
        return {
            "learning_rate": falling,
            "train_freq": 4,
            "gradient_steps": 2,
            "batch_size": 512,
            "learning_starts": min(10_000, steps // 10),
        }
    if algorithm == "a2c":
        return {"n_steps": min(ticks, 32), "ent_coef": 1e-3}
    at_once = max(min(ticks, 125), 2)  # PPO refuses a rollout of one step
    rollout = at_once * episodes
    sixteenth = rollout // 16
    return {
        "n_steps": at_once,
        "batch_size": sixteenth if sixteenth > 1 and rollout % sixteenth == 0 else rollout,
        "n_epochs": 4,
        "ent_coef": 0.0,  # the policy is used without exploration
        "learning_rate": falling,
        "gae_lambda": 0.98,
    }


def _vectorised(env_id: str, episodes: int, keywords: dict[str, Any]) -> tuple[VecEnv, int]:
    """Return the environment in the form of Stable-Baselines3, and the length of its stream."""
    from agents.rl.learning.sb3 import SurrogateVecEnv

    name = require_trainable(env_id)
    if keywords.get("reward", "scalar") != "scalar":
        raise ValueError(
            f"reward={keywords['reward']!r}: the algorithms learn from rewards that are numbers; leave reward out"
        )
    spec = gym.spec(name)  # made from its id, v0 would print Gymnasium's advice to use v1, which is another problem
    environment = class_of(name)
    if spec.vector_entry_point is not None:
        known = keywords_of_class(environment)
        refuse_unknown(environment, [keyword for keyword in keywords if keyword not in known])
        made = gym.make_vec(spec, num_envs=episodes, vectorization_mode="vector_entry_point", **keywords).unwrapped
        assert isinstance(made, EpisodesVectorEnv)
        if isinstance(made, DecisionSurrogateVectorEnv):
            require_all_decisions(made.models)
        from stable_baselines3.common.vec_env import VecMonitor

        return VecMonitor(SurrogateVecEnv(made)), made.ticks
    if "stream" in keywords:  # the id names it, as that of a surrogate does
        refuse_unknown(environment, ["stream"])
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(partial(gym.make, spec), n_envs=1, env_kwargs=keywords)
    return env, env.get_attr("unwrapped")[0].alma.ticks
