"""The ids of the decision environments and surrogates, registered with Gymnasium.

``import agents.rl`` calls `register`. ``import alma_env`` calls it, too, if the distribution is installed, because the
entry point ``gymnasium.envs`` names it. This module imports neither PyTorch nor the environments; Gymnasium imports an
environment when it makes one.
"""

from __future__ import annotations

from alma_env.registration import STREAM_IDS, TEXT_ID, register_in_both_namespaces


def register() -> None:
    """Register ``X-ALMA-Wait-v0``, ``-v1`` and ``X-ALMA-Wait-Surrogate-v0``, ``-v1`` for each stream ``X-ALMA-v0``.

    ``X-ALMA-Wait-MO-v0`` and ``X-ALMA-Wait-Surrogate-MO-v0`` have vector rewards. Each id is also registered in the
    namespace ``alma_env``, as in ``alma_env/X-ALMA-Wait-v0``. Text has no surrogate.
    """
    for stream in STREAM_IDS:
        name = stream.removesuffix("-v0")
        _register(f"{name}-Wait", stream, entry_point="agents.rl.wait_env:WaitEnv")
        of_v1 = {"stream": stream}
        register_in_both_namespaces(f"{name}-Wait-v1", kwargs=of_v1, entry_point="agents.rl.decision_env:DecisionEnv")
        if stream != TEXT_ID:
            _register(
                f"{name}-Wait-Surrogate",
                stream,
                entry_point="agents.rl.surrogate:SurrogateEnv",
                vector_entry_point="agents.rl.surrogate:SurrogateVectorEnv",
            )
            register_in_both_namespaces(
                f"{name}-Wait-Surrogate-v1",
                kwargs=of_v1,
                entry_point="agents.rl.decision_surrogate:DecisionSurrogateEnv",
                vector_entry_point="agents.rl.decision_surrogate:DecisionSurrogateVectorEnv",
            )


def _register(name: str, stream: str, **entry_points: str) -> None:
    register_in_both_namespaces(f"{name}-v0", kwargs={"stream": stream}, **entry_points)
    # Gymnasium's checker warns of every reward that is not a number.
    of_vectors = {"stream": stream, "reward": "vector"}
    register_in_both_namespaces(f"{name}-MO-v0", kwargs=of_vectors, disable_env_checker=True, **entry_points)
