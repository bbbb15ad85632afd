"""Training of a learned schedule: one network for several streams, widths and prices, with PPO on surrogates.

A second phase may go on with real runs (`agents.rl.learning.fine_tuning`).

alma policy train-schedule Digits-ALMA-v0 MNIST-ALMA-v0 --pass-price 0 100 --out schedule.npz
alma policy train-schedule Digits-ALMA-v0 --real 2000 --out schedule.npz
alma run MNIST-ALMA-v0 --policy schedule.npz:pass_price=40
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.policies.learned.known_states import KnownStates
from agents.policies.learned.next_training import WITH_GROWTH, WITHOUT_GROWTH
from agents.policies.learned.schedule import ScheduleNetwork
from agents.rl.environments.price_range import PriceRange
from agents.rl.learning.real_runs import FIRST_SEED, RealRuns
from agents.rl.learning.train import require_seed
from agents.rl.models.training_model import TrainingModel, require_all_decisions
from agents.rl.surrogates.next_training_env import NextTrainingVectorEnv
from alma_env.errors import how_to_install
from alma_env.integers import require_integer

EPISODES = 512  # at once, of each model
_STEPS_AT_ONCE = 32  # trainings of each episode between two updates
_KNOWN = 64  # simulated episodes at once of each model, whose states the network knows afterwards
_KNOWN_DECISIONS = 500  # of each of them, at least: an episode that ends is followed by another one


def train_schedule(
    models: Sequence[TrainingModel],
    *,
    pass_price: float | tuple[float, float] = (0.0, 100.0),
    memory_price: float | tuple[float, float] = (0.0, 0.0),
    steps: int = 8_000_000,
    seed: int = 0,
    units: int = 32,
    dead: float = 0.0,
    progress: bool = False,
    about: dict[str, Any] | None = None,
    real: RealRuns | None = None,
    keep: Callable[[ScheduleNetwork], None] | None = None,
) -> ScheduleNetwork:
    """Train a network that decides after each training when and how to train next.

    Args:
        models: fitted models of trainings. Each has equally many episodes; streams may differ in length. If a learner
            can grow, the network decides about growth, too.
        pass_price: price of a full pass in errors, or the lowest and the highest one.
        memory_price: price of the untrained size in errors per tick, or the lowest and the highest one.
        steps: trainings to learn from, at least; they are rounded up to whole rollouts.
        seed: of the network's weights, the exploration and the episodes.
        units: of each of the two hidden layers.
        dead: probability that a simulated training from a new initialisation leaves a network which only guesses; see
            `agents.rl.surrogates.decision_surrogate.DecisionSurrogateVectorEnv`.
        progress: whether to show a progress bar.
        about: what the models are, as plain data, for the file.
        real: real runs from which the network learns afterwards; None: none.
        keep: called with the network so far, which a failure would lose: if a failure or Ctrl-C ends the learning on
            surrogates after an update, with ``stopped_after``, a number of trainings, in its ``about``; before the
            first real run with that of the surrogates; and after each update on real runs, with ``real_runs``.

    Returns:
        The network, with the states of simulated episodes that it decides. The states of the real runs are known, too,
        also those after decisions that were tried at random.

    Raises:
        TypeError: steps, units or seed are not integers.
        ValueError: no models or steps, a wrong price, seed or probability, or a model without recorded replay or
            restarts; or Stable-Baselines3 is not installed.
        AlmaError: of the real runs: the data of a stream are missing, a training diverged, or a process ended.
    """
    steps, units = require_integer(steps, "steps"), require_integer(units, "units")
    if not models or steps < 1 or units < 1:
        raise ValueError(
            f"{len(models)} models, steps={steps}, units={units}: must be at least 1 each; the defaults are 8000000 "
            "steps and 32 units"
        )
    seed = require_seed(seed)
    ranges = {"pass_price": pass_price, "memory_price": memory_price}
    prices = {name: astuple(PriceRange.of(name, price)) for name, price in ranges.items()}
    require_all_decisions(models)
    simulated: dict[str, Any] = {**prices, "dead": dead}
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.utils import LinearSchedule

        from agents.rl.learning.fine_tuning import fine_tuned, network_of
        from agents.rl.learning.sb3 import JoinedVecEnv, SurrogateVecEnv, learn
    except ImportError as error:
        raise ValueError(f"the package stable-baselines3 is missing; {how_to_install('rl')}") from error
    menu = WITH_GROWTH if any(model.grows for model in models) else WITHOUT_GROWTH
    env = JoinedVecEnv(
        [SurrogateVecEnv(NextTrainingVectorEnv(EPISODES, [model], **simulated, menu=menu)) for model in models]
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is so small that threads wait for each other
    try:
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=_STEPS_AT_ONCE,
            batch_size=env.num_envs,  # the trainings between two updates are 32 batches
            n_epochs=4,
            gamma=1.0,  # a price is paid now, and its return comes until the end of the stream
            gae_lambda=0.99,
            ent_coef=0.002,
            learning_rate=LinearSchedule(2e-3, 0.0, 1.0),
            policy_kwargs={"net_arch": [units, units]},
            seed=seed,
            device="cpu",
        )
        facts: dict[str, Any] = {**(about or {}), **simulated, "steps": steps, "seed": seed}

        def keep_stopped() -> None:
            if keep is not None:
                stopped = {**facts, "stopped_after": model.num_timesteps}
                keep(_knowing(network_of(model), models, simulated, stopped)[0])

        learn(model, steps, progress=progress, keep=keep_stopped)
        network, seen = _knowing(network_of(model), models, simulated, facts)
        if real is not None and real.count:
            if keep is not None:
                keep(network)
            facts = {**facts, "real_streams": [*map(str, real.streams)], "real_seed": FIRST_SEED}
            for tuned, met, runs in fine_tuned(model, real, menu=menu, prices=prices, seed=seed):
                known = KnownStates.of([*seen, met])
                network = replace(network_of(tuned), known=known, about={**facts, "real_runs": runs})
                if keep is not None:
                    keep(network)
    finally:
        torch.set_num_threads(threads)
    return network


def _knowing(
    learned: ScheduleNetwork, models: Sequence[TrainingModel], simulated: dict[str, Any], about: dict[str, Any]
) -> tuple[ScheduleNetwork, list[NDArray[np.float32]]]:
    """Return a network that knows the states of its episodes, and these states, float32 (n, 18) for each model."""
    seen = [_seen(learned, model, simulated) for model in models]
    return replace(learned, known=KnownStates.of(seen), about=about), seen


def _seen(network: ScheduleNetwork, model: TrainingModel, simulated: dict[str, Any]) -> NDArray[np.float32]:
    """Return the features that episodes of the network meet, float32 (n, 18)."""
    env = NextTrainingVectorEnv(_KNOWN, [model], **simulated, menu=network.menu)
    observations, _ = env.reset(seed=1)
    seen = [observations]
    for _ in range(max(env.ticks, _KNOWN_DECISIONS)):
        observations, *_ = env.step(network.decide(observations))
        seen.append(observations)
    return np.concatenate(seen)
