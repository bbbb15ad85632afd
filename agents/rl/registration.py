"""The ids of the decision environments and surrogates, registered with Gymnasium.

``import agents.rl`` calls `register`. ``import alma_env`` calls it, too, if the distribution is installed, because the
entry point ``gymnasium.envs`` names it. This module imports neither PyTorch nor the environments; Gymnasium imports an
environment when it makes one.
"""

from __future__ import annotations

from gymnasium.envs import registration as gymnasium

from alma_env.registration import STREAM_IDS, TEXT_ID


def register() -> None:
    """Register ``X-ALMA-Wait-v0``, ``-v1`` and ``X-ALMA-Wait-Surrogate-v0``, ``-v1`` for each stream ``X-ALMA-v0``.

    Text has no surrogate.
    """
    for stream in STREAM_IDS:
        name = stream.removesuffix("-v0")
        for version, real, surrogate in (
            ("v0", "wait_env:WaitEnv", "surrogate:Surrogate"),
            ("v1", "decision_env:DecisionEnv", "decision_surrogate:DecisionSurrogate"),
        ):
            if f"{name}-Wait-{version}" not in gymnasium.registry:
                gymnasium.register(f"{name}-Wait-{version}", entry_point=f"agents.rl.{real}", kwargs={"stream": stream})
            if stream != TEXT_ID and f"{name}-Wait-Surrogate-{version}" not in gymnasium.registry:
                gymnasium.register(
                    f"{name}-Wait-Surrogate-{version}",
                    entry_point=f"agents.rl.{surrogate}Env",
                    vector_entry_point=f"agents.rl.{surrogate}VectorEnv",
                    kwargs={"stream": stream},
                )
