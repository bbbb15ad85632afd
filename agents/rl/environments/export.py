"""Recorded runs as episodes of the decision environment: observations, actions and rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agents.analysis.prices import Prices, reward_vector
from agents.policies.actions import Actions
from agents.policies.learned.features import feature_space, features
from agents.rl.environments.run_keywords import keywords_of
from agents.rl.recorded.recording import Recording
from alma_env.errors import how_to_install


@dataclass(frozen=True)
class Episode:
    """One run as an episode of the decision environment.

    Attributes:
        observations: float32 (B + 1, 13).
        actions: int64 (B,), or (B, 3) for ``multi``.
        reward_vectors: float64 (B, 3), see `agents.analysis.prices.reward_vector`.
        rewards: float64 (B,).
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.int64]
    reward_vectors: NDArray[np.float64]
    rewards: NDArray[np.float64]


def episode_of(recording: Recording, kind: str = "train", prices: Prices | None = None) -> Episode:
    """Return the episode that `WaitEnv` with actions ``train`` or ``multi`` and these prices would have had in a run.

    Raises:
        ValueError: the kind is unknown; or no action expresses a decision of the run: the run replays a part of the
            earlier data or restarts, the kind is ``train`` and the run replays or grows, or the run grows by several
            steps before one training.
    """
    if kind not in ("train", "multi"):
        raise ValueError(f"kind={kind!r}: must be 'train' or 'multi'")
    recording.require_expressible()
    decisions = recording.decisions
    if kind == "train" and decisions[:, 1:].any():
        raise ValueError(
            f"a run of {recording.learner!r} with {recording.schedule!r} replays or grows, which kind='train' cannot "
            "express; use kind='multi', or --actions multi of `alma surrogate export`"
        )
    flops = np.zeros(recording.ticks + 1)
    flops[recording.column("tick").astype(int)] = recording.column("flops")
    parameters = recording.at_ticks("parameters", recording.parameters)
    vectors = reward_vector(recording.errors[1:], flops[1:], parameters[1:])
    return Episode(
        observations=_observations(recording, flops, parameters),
        actions=decisions[:, 0] if kind == "train" else decisions,
        reward_vectors=vectors,
        rewards=(prices or Prices()).reward(vectors),
    )


def _observations(recording: Recording, flops: NDArray[Any], parameters: NDArray[Any]) -> NDArray[np.float32]:
    """Return the observations before the decisions of ticks 1..B, and the observation at the end."""
    ticks = np.append(np.arange(1, recording.ticks + 1), recording.ticks)
    trained = recording.column("tick").astype(int)
    # The observation at tick t counts the trainings at ticks below t; the observation at the end counts all.
    stages = np.append(np.searchsorted(trained, np.arange(1, recording.ticks + 1)), len(trained))
    last = np.concatenate([[0], trained])[stages]

    def before(name: str, back: int) -> NDArray[np.float64]:
        values = np.concatenate([[np.nan] * 2, recording.column(name)])
        return np.asarray(values[stages + 1 - back])

    return features(
        tick=ticks,
        ticks=recording.ticks,
        pending=ticks - last,
        stages=stages,
        validation_loss=before("validation_loss", 0),
        validation_error=before("validation_error", 0),
        previous_validation_loss=before("validation_loss", 1),
        previous_validation_error=before("validation_error", 1),
        guess_loss=math.log(recording.classes),
        parameters=parameters,
        first_parameters=recording.parameters,
        flops=np.cumsum(flops),
    )


def to_minari(
    recordings: Sequence[Recording], dataset_id: str, *, kind: str = "train", prices: Prices | None = None
) -> Any:
    """Write runs on one stream as a Minari data set into Minari's folder, and return the data set.

    ``kind`` and ``prices`` are those of `episode_of`. An example of a ``dataset_id`` is ``alma/mnist-waiting-v0``. The
    data set recovers the environment of the runs: with their hyper-parameters, the prices, and the width of the first
    run.

    Raises:
        ValueError: Minari is not installed, its rules refuse the id, or it already has a data set of this id; the runs
            have different streams, learners or hyper-parameters, or their stream is not one of the paper's; or as
            `episode_of`. Then nothing is written.
        DataUnavailableError: the data of the stream are missing, so the environment of the runs cannot be made.
    """
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
        from minari.dataset.minari_dataset import parse_dataset_id
    except ImportError as error:
        raise ValueError(
            f"dataset_id={dataset_id!r}: the package minari is missing; {how_to_install('minari')}"
        ) from error
    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError):  # TypeError: the id has no version
        raise ValueError(
            f"dataset_id={dataset_id!r}: must be NAMESPACE/NAME-vVERSION or NAME-vVERSION, in letters, digits, '_' and "
            "'-'; use for example alma/mnist-waiting-v0"
        ) from None
    if dataset_id in minari.list_local_datasets():
        raise ValueError(
            f"dataset_id={dataset_id!r}: Minari already has this data set; choose another id, or delete it with "
            f"`minari delete {dataset_id}`"
        )
    buffers = []
    for number, recording in enumerate(recordings):
        episode = episode_of(recording, kind, prices)
        end = np.arange(recording.ticks) == recording.ticks - 1
        buffers.append(
            EpisodeBuffer(
                id=number,
                seed=recording.seed,
                observations=episode.observations,
                actions=episode.actions,
                rewards=episode.rewards,
                terminations=end,
                truncations=np.zeros_like(end),
                infos={"vector_reward": np.concatenate([np.zeros((1, 3)), episode.reward_vectors])},
            )
        )
    env, first = _environment(recordings, kind, prices or Prices()), recordings[0]
    widths = ", ".join(map(str, sorted({recording.width or 0 for recording in recordings})))
    return minari.create_dataset_from_buffers(
        dataset_id,
        buffers,
        env=env,
        eval_env=env.spec,
        observation_space=feature_space(),
        action_space=Actions(kind, grows=True).space(),
        algorithm_name="schedules of alma-env",
        description=f"Decisions when to train {first.learner} {widths} on {first.env}, recorded from real runs",
        data_format="hdf5",
    )


def _environment(recordings: Sequence[Recording], kind: str, prices: Prices) -> gym.Env[Any, Any]:
    """Return the decision environment of the runs; it is made here, so that nothing is written if it cannot be made."""
    first = recordings[0]
    streams = sorted({recording.env for recording in recordings})
    if len(streams) > 1:
        raise ValueError(
            f"recordings on {', '.join(streams)}: the runs of a data set have one environment; export the runs of one "
            "stream"
        )
    keywords = {"learner": first.learner, **keywords_of(first)}
    for recording in recordings:
        theirs = {"learner": recording.learner, **keywords_of(recording)}
        different = [name for name in sorted({*theirs, *keywords}) if theirs.get(name) != keywords.get(name)]
        if different:
            raise ValueError(
                f"recordings with different {', '.join(different)}: the runs of a data set have one environment; "
                "export the runs of one learner with equal hyper-parameters"
            )
    spec = gym.spec(first.env.replace("-v0", "-Wait-v0"))  # made from its id, it would advise to use v1
    priced: dict[str, Any] = {"flops_price": prices.flops, "parameter_price": prices.parameters}
    return gym.make(spec, width=first.width, actions=kind, **priced, **keywords)
