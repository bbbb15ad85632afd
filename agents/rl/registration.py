"""The ids of the decision environments and surrogates, registered with Gymnasium.

``import agents.rl`` calls `register`. ``import alma_env`` calls it, too, if the distribution is installed, because the
entry point ``gymnasium.envs`` names it. This module imports neither PyTorch nor the environments; Gymnasium imports an
environment when it makes one.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from alma_env.errors import did_you_mean
from alma_env.registration import NAMESPACE, STREAM_IDS, register_in_both_namespaces

SHIPPED = Path(__file__).with_name("recorded")  # folder of the recorded runs that come with the package
DECISIONS = "-decisions"  # ends the names of files for the second surrogate
OF_RECORDED_RUNS = "Recorded-ALMA-Wait-Surrogate"  # the surrogate of the user's own recorded runs


def shipped_streams() -> list[str]:
    """Return the ids of the streams whose recorded runs come with the package."""
    names = {file.stem.removesuffix(DECISIONS) for file in SHIPPED.glob("*.npz")}
    return [stream for stream in STREAM_IDS if stream.removesuffix("-ALMA-v0") in names]


def trainable_ids() -> list[str]:
    """Return the ids of the decision environments and surrogates whose rewards are numbers, without a namespace."""
    return [id for id in gym.registry if "-ALMA-Wait" in id and "-MO-" not in id and "/" not in id]


def require_trainable(env_id: str) -> str:
    """Return the id without a namespace of a decision environment or surrogate whose rewards are numbers.

    Raises:
        ValueError: it is the id of nothing of the kind; the message suggests similar ids.
    """
    name = env_id.removeprefix("alma_env:").removeprefix(NAMESPACE)
    if "-MO-" in name:
        raise ValueError(
            f"env_id={env_id!r}: its rewards are vectors, and the algorithms learn from rewards that are numbers; use "
            "the id without -MO"
        )
    ids = trainable_ids()
    if name not in ids:
        own = ""
        if "-Surrogate" in name and name.partition("-Wait")[0] + "-v0" in STREAM_IDS:
            own = f"; for a stream without recorded runs, record some, and use {OF_RECORDED_RUNS}-v1 with recorded=FILE"
        raise ValueError(
            f"env_id={env_id!r}: not a decision environment; the ids are {', '.join(ids)}"
            f"{own or did_you_mean(name, ids)}"
        )
    return name


def register() -> None:
    """Register ``X-ALMA-Wait-v0`` and ``-v1`` for each stream ``X-ALMA-v0``, and the surrogates.

    ``X-ALMA-Wait-Surrogate-v0`` and ``-v1`` exist for the `shipped_streams`. ``Recorded-ALMA-Wait-Surrogate-v0`` and
    ``-v1`` need ``recorded=FILE``, and their stream is the stream of these runs. ``X-ALMA-Wait-MO-v0`` and
    ``X-ALMA-Wait-Surrogate-MO-v0`` have vector rewards. Each id is also registered in the namespace ``alma_env``, as in
    ``alma_env/X-ALMA-Wait-v0``.
    """
    for stream in STREAM_IDS:
        name = f"{stream.removesuffix('-v0')}-Wait"
        _register(name, stream, entry_point="agents.rl:WaitEnv")
        of_v1 = {"stream": stream}
        register_in_both_namespaces(f"{name}-v1", kwargs=of_v1, entry_point="agents.rl:DecisionEnv")
    for stream in shipped_streams():
        _register_surrogates(f"{stream.removesuffix('-v0')}-Wait-Surrogate", stream)
    _register_surrogates(OF_RECORDED_RUNS, None)


def _register_surrogates(name: str, stream: str | None) -> None:
    _register(
        name,
        stream,
        entry_point="agents.rl:SurrogateEnv",
        vector_entry_point="agents.rl:SurrogateVectorEnv",
    )
    register_in_both_namespaces(
        f"{name}-v1",
        kwargs={"stream": stream},
        entry_point="agents.rl:DecisionSurrogateEnv",
        vector_entry_point="agents.rl:DecisionSurrogateVectorEnv",
    )


def _register(name: str, stream: str | None, **entry_points: str) -> None:
    register_in_both_namespaces(f"{name}-v0", kwargs={"stream": stream}, **entry_points)
    # Gymnasium's checker warns of every reward that is not a number.
    of_vectors = {"stream": stream, "reward": "vector"}
    register_in_both_namespaces(f"{name}-MO-v0", kwargs=of_vectors, disable_env_checker=True, **entry_points)
