"""Recorded runs as episodes of the decision environment: what was seen, done and paid at every tick."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agents.waiting.actions import Actions
from agents.waiting.features import feature_space, features
from agents.waiting.prices import Prices, reward_vector
from agents.waiting.recordings import Recording


@dataclass(frozen=True)
class Episode:
    """One run as the decision environment would have shown it.

    Attributes:
        observations: float32 (B + 1, 13).
        actions: int64 (B,), or (B, 3) for ``multi``.
        reward_vectors: float64 (B, 3), see `agents.waiting.prices.reward_vector`.
        rewards: float64 (B,).
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.int64]
    reward_vectors: NDArray[np.float64]
    rewards: NDArray[np.float64]


def episode_of(made: Recording, kind: str = "train", prices: Prices | None = None) -> Episode:
    """What `WaitEnv` with these actions and prices would have told about a run.

    Args:
        made: the run.
        kind: how actions are written, ``train`` or ``multi``, see `agents.waiting.actions.Actions`.
        prices: of FLOPs and parameters; by default none.

    Raises:
        ValueError: with ``train``, a run that replays or grows in some trainings only; or another kind.
    """
    if kind not in ("train", "multi"):
        raise ValueError(f"kind={kind!r}: must be 'train' or 'multi'")
    rows = made.column("tick").astype(int) - 1
    flags = np.zeros((made.ticks, 3), np.int64)
    flags[rows] = np.stack([np.ones(len(rows)), made.column("replay"), made.column("grow")], -1)
    if kind == "train" and flags[rows, 1:].any():
        raise ValueError(
            f"a run of {made.learner!r} with {made.schedule!r} replays or grows, which wait and train cannot say; use "
            "kind='multi'"
        )
    flops, parameters = np.zeros(made.ticks), np.full(made.ticks, float(made.parameters))
    flops[rows] = made.column("flops")
    for row, count in zip(rows, made.column("parameters"), strict=True):
        parameters[row:] = count
    vectors = reward_vector(made.errors[1:], flops, parameters)
    return Episode(
        observations=_observations(made, flops, parameters),
        actions=flags[:, 0] if kind == "train" else flags,
        reward_vectors=vectors,
        rewards=(prices or Prices()).reward(vectors),
    )


def _observations(made: Recording, flops: NDArray[Any], parameters: NDArray[Any]) -> NDArray[np.float32]:
    """Of the ticks 1..B before their decisions, and of the end."""
    ticks = np.append(np.arange(1, made.ticks + 1), made.ticks)
    trained = made.column("tick").astype(int)
    # Before the decision of tick t the trainings at ticks below t have been made; at the end all have.
    stages = np.append(np.searchsorted(trained, np.arange(1, made.ticks + 1)), len(trained))
    last = np.concatenate([[0], trained])[stages]

    def before(name: str, back: int) -> NDArray[np.float64]:
        values = np.concatenate([[np.nan] * 2, made.column(name)])
        return np.asarray(values[np.maximum(stages + 1 - back, 0)])

    return features(
        tick=ticks,
        ticks=made.ticks,
        pending=ticks - last,
        stages=stages,
        validation_loss=before("validation_loss", 0),
        validation_error=before("validation_error", 0),
        previous_validation_loss=before("validation_loss", 1),
        previous_validation_error=before("validation_error", 1),
        guess_loss=math.log(made.classes),
        parameters=np.concatenate([[made.parameters], parameters]),
        first_parameters=made.parameters,
        flops=np.concatenate([[0.0], np.cumsum(flops)]),
    )


def to_minari(
    recordings: Sequence[Recording], dataset_id: str, *, kind: str = "train", prices: Prices | None = None
) -> Any:
    """Write recorded runs as a Minari data set, into Minari's own folder, and return it.

    Args:
        recordings: runs on one stream; the data set's environment is that of the first one.
        dataset_id: as ``alma/mnist-waiting-v0``.
        kind: how actions are written, see `episode_of`.
        prices: of FLOPs and parameters; by default none.

    Raises:
        ValueError: Minari is not installed, or has a data set of this name; or as `episode_of`.
    """
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError as error:
        raise ValueError(
            f"dataset_id={dataset_id!r}: the package minari is missing; pip install 'alma-env[minari]'"
        ) from error
    if dataset_id in minari.list_local_datasets():
        raise ValueError(
            f"dataset_id={dataset_id!r}: Minari has a data set of this name; choose another, or delete it with "
            f"`minari delete {dataset_id}`"
        )
    buffers = []
    for number, made in enumerate(recordings):
        episode = episode_of(made, kind, prices)
        end = np.arange(made.ticks) == made.ticks - 1
        buffers.append(
            EpisodeBuffer(
                id=number,
                seed=made.seed,
                observations=episode.observations,
                actions=episode.actions,
                rewards=episode.rewards,
                terminations=end,
                truncations=np.zeros_like(end),
                infos={"reward_vector": np.concatenate([np.zeros((1, 3)), episode.reward_vectors])},
            )
        )
    first = recordings[0]
    spec = copy.deepcopy(gym.spec(first.env.replace("-v0", "-Wait-v0")))
    spec.kwargs |= {"learner": first.learner, "width": first.width, "actions": kind}
    return minari.create_dataset_from_buffers(
        dataset_id,
        buffers,
        env=spec,
        eval_env=spec,
        observation_space=feature_space(),
        action_space=Actions(kind, grows=True).space(),
        algorithm_name="schedules of alma-env",
        description=f"Decisions when to train on {first.env}, recorded from real runs",
        data_format="hdf5",
    )
