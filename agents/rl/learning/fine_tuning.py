"""PPO on real runs: the second phase of `agents.rl.learning.train_schedule`. It needs Stable-Baselines3.

A surrogate errs, and its network uses the errors. Real runs are slow, so few of them change the network a little.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import ConstantSchedule

from agents.policies.learned.known_states import KnownStates
from agents.policies.learned.next_training import Menu
from agents.policies.learned.schedule import ScheduleNetwork
from agents.rl.learning.real_runs import Played, RealRuns, player
from agents.rl.learning.real_training_env import RealTrainingEnv

_RUNS_AT_ONCE = 256  # between two updates
_LEARNING_RATE = 3e-4  # at the first update; it falls linearly to 0
_PARTS = 4  # of the decisions between two updates, each of which is a step of the gradient


def fine_tuned(
    model: PPO,
    real: RealRuns,
    *,
    menu: Menu,
    prices: dict[str, tuple[float, float]],
    seed: int = 0,
) -> Iterator[tuple[PPO, NDArray[np.float32], int]]:
    """Continue the training of a model on real runs.

    An update learns from whole runs, so that no value of an unfinished run has to be estimated.

    Args:
        model: what was trained on surrogates; its weights of policy and value network are the first ones.
        real: the runs, at least one.
        menu: the decisions of the model.
        prices: the ranges ``pass_price`` and ``memory_price`` from which each run draws.
        seed: of the exploration, and of the order of the gradient's steps.

    Yields:
        After each update, so that a later failure loses nothing: a new model, the features that the runs so far met,
        float32 (n, 18), and the number of these runs. The next update changes the same model.

    Raises:
        ValueError: a price or a setting of the streams is wrong.
        AlmaError: the data of a stream are missing, a training diverged, or a process ended.
    """
    env = model.get_env()
    assert env is not None
    tuned = PPO(
        "MlpPolicy",
        env,
        n_epochs=4,
        gamma=1.0,
        gae_lambda=0.99,
        policy_kwargs=model.policy_kwargs,
        seed=seed,
        device="cpu",
    )
    tuned.policy.load_state_dict(model.policy.state_dict())
    tuned.set_logger(Logger(None, []))
    seen: list[NDArray[np.float32]] = []
    makers = [partial(RealTrainingEnv, stream, menu=menu, **prices) for stream in real.streams]
    with player(makers, workers=real.workers, seed=seed) as play:
        for numbers in np.array_split(np.arange(real.count), math.ceil(real.count / _RUNS_AT_ONCE)):
            runs = play(network_of(tuned), numbers.tolist())
            tuned.rollout_buffer = rollouts_of(tuned, runs)
            tuned.batch_size = math.ceil(tuned.rollout_buffer.buffer_size / _PARTS)
            tuned.lr_schedule = ConstantSchedule(_LEARNING_RATE * (1 - numbers[0] / real.count))
            tuned.train()
            seen += [run.observations for run in runs]
            done = int(numbers[-1]) + 1
            yield tuned, np.concatenate(seen), done
            if real.report is not None:
                real.report(done, len(runs), -float(np.mean([run.rewards.sum() for run in runs])))


def rollouts_of(model: PPO, runs: Sequence[Played]) -> RolloutBuffer:
    """Return the runs one after the other, with their advantages."""
    observations, decisions, rewards = (
        np.concatenate([getattr(run, name) for run in runs]) for name in ("observations", "decisions", "rewards")
    )
    starts = np.concatenate([np.arange(len(run.decisions)) == 0 for run in runs])
    with torch.no_grad():
        values, chances, _ = model.policy.evaluate_actions(torch.from_numpy(observations), torch.from_numpy(decisions))
    spaces = model.observation_space, model.action_space
    buffer = RolloutBuffer(len(decisions), *spaces, gae_lambda=model.gae_lambda, gamma=model.gamma, device="cpu")
    for i in range(len(decisions)):
        one = slice(i, i + 1)
        buffer.add(observations[one], decisions[one], rewards[one], starts[one], values[one], chances[one])
    buffer.compute_returns_and_advantage(torch.zeros(1), np.ones(1, bool))
    return buffer


def network_of(model: PPO) -> ScheduleNetwork:
    """Return the network that decides; it knows no states yet."""
    return ScheduleNetwork(tuple(_layers(model)), KnownStates.ranges(*np.zeros((2, 0), np.float32)), {})


def _layers(model: PPO) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Yield weights and biases of the layers that decide."""
    policy: Any = model.policy
    for layer in itertools.chain(policy.mlp_extractor.policy_net, [policy.action_net]):
        if isinstance(layer, torch.nn.Linear):
            yield layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()
