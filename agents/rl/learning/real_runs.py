"""Real runs whose decisions a network draws at random, in processes side by side: what `fine_tuning` learns from."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from agents.policies.learned.schedule import ScheduleNetwork
from agents.rl.learning.real_training_env import RealStream, RealTrainingEnv
from alma_env.errors import AlmaError

FIRST_SEED = 300  # of the streams: 0 to 99 are for preregistered comparisons, 100 to 139 are recorded


@dataclass(frozen=True)
class RealRuns:
    """Real runs to learn from; run n is a run on the stream of seed 300 + n, on each of the ``streams`` in turn.

    Attributes:
        streams: learners on real streams.
        count: number of runs, all streams together.
        workers: processes; the results do not depend on their number.
        report: called after each update of the network with the number of runs so far, the number of runs since the
            update before, and the mean cost of the latter, as a multiple of what simple schedules cost on the models.

    Raises:
        ValueError: no streams, a negative number of runs, or no process.
    """

    streams: Sequence[RealStream]
    count: int
    workers: int = 1
    report: Callable[[int, int, float], None] | None = None

    def __post_init__(self) -> None:
        if not self.streams or self.count < 0 or self.workers < 1:
            raise ValueError(
                f"{len(self.streams)} streams, count={self.count}, workers={self.workers}: must be at least 1, 0 and 1"
            )


@dataclass(frozen=True)
class Played:
    """What a run saw, decided and paid.

    Attributes:
        observations: before each decision, float32 (decisions, 18).
        decisions: int64 (decisions,).
        rewards: of each decision, float64 (decisions,); in multiples of what simple schedules cost.
    """

    observations: NDArray[np.float32]
    decisions: NDArray[np.int64]
    rewards: NDArray[np.float64]


Play = Callable[[ScheduleNetwork, Sequence[int]], list[Played]]


@contextmanager
def player(envs: Sequence[Callable[[], RealTrainingEnv]], *, workers: int = 1, seed: int = 0) -> Iterator[Play]:
    """Give a function that plays the runs of these numbers with a network, and returns them in this order.

    Args:
        envs: functions that make the environments; they can be pickled if there are several workers.
        workers: processes. Each makes all environments, and trains with one thread. With 1, this process plays.
        seed: of the exploration.

    Raises:
        AlmaError: a process ended; or what playing raises.
    """
    if workers == 1:
        made = [make() for make in envs]
        yield lambda network, numbers: [_play(made, network, number, seed) for number in numbers]
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit the locks of PyTorch's threads
    with ProcessPoolExecutor(workers, spawn, _start, (envs,)) as pool:
        try:
            yield lambda network, numbers: list(pool.map(partial(_play_here, network, seed), numbers))
        except BrokenProcessPool as error:
            raise AlmaError(
                f"a process of the {workers} that play real runs ended ({error}); give fewer --workers if the memory "
                'was full, and in a script, call train_schedule below `if __name__ == "__main__":`'
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_creators: list[Callable[[], RealTrainingEnv]] = []  # of a worker process
_envs: list[RealTrainingEnv] = []


def _start(envs: Sequence[Callable[[], RealTrainingEnv]]) -> None:
    torch.set_num_threads(1)
    _creators[:] = envs


def _play_here(network: ScheduleNetwork, seed: int, number: int) -> Played:
    if not _envs:  # here, and not in `_start`: the pool would replace an error of `_start` by its own
        _envs[:] = [make() for make in _creators]
    return _play(_envs, network, number, seed)


def _play(envs: Sequence[RealTrainingEnv], network: ScheduleNetwork, number: int, seed: int) -> Played:
    """Play one run; its decisions have the probabilities that the network gives them."""
    env = envs[number % len(envs)]
    draw = np.random.default_rng([seed, number])
    seen, _ = env.reset(seed=FIRST_SEED + number)
    observations, decisions, rewards, ended = [], [], [], False
    while not ended:
        scores = network.scores(seen)
        decision = int((scores + draw.gumbel(size=scores.shape)).argmax())  # Gumbel's trick: a draw from the softmax
        observations.append(seen)
        decisions.append(decision)
        seen, reward, ended, *_ = env.step(decision)
        rewards.append(reward)
    return Played(np.stack(observations), np.array(decisions, np.int64), np.array(rewards))
