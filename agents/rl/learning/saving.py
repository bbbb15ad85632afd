"""Saving a trained model as a learned policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agents.policies.learned.model_files import Normalisation, add_to_archive, kind_of
from alma_env.files import replacing

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv


def save_policy(model: BaseAlgorithm, path: str | Path) -> Path:
    """Save a model, with the normalisation of its observations and its prices, for `LearnedPolicy` and ``alma run``.

    A file that exists is replaced in one step: after an interruption it is the old one.

    The file is that of ``model.save(path)``. If the model's environment is a ``VecNormalize`` that normalises
    observations, the file also holds the mean and variance of each feature, which ``model.save`` leaves out. If the
    environment has prices, the file also holds their ranges.

    Args:
        model: a model of Stable-Baselines3 or sb3-contrib, trained on a decision environment or a surrogate.
        path: file to write; it ends in ``.zip``.

    Returns:
        The file.

    Raises:
        ValueError: the file name does not end in .zip; the model has no environment, which knows the normalisation and
            the prices; or a run cannot play the model, because a wrapper changed the observations or the actions in the
            training. Then nothing is written.
    """
    file = Path(path)
    if file.suffix != ".zip":
        raise ValueError(f"path={str(path)!r}: Stable-Baselines3 writes an archive; let the file name end in .zip")
    kind_of(model, f"path={str(path)!r}")
    env = model.get_env()
    if env is None:
        raise ValueError(
            f"path={str(path)!r}: the model has no environment, so the normalisation of its observations and its "
            "prices are unknown; load it with the environment of its training, as in PPO.load(FILE, env=env)"
        )
    normalised = model.get_vec_normalize_env()
    with replacing(file) as partial:
        model.save(partial)
        normalisation = None
        if normalised is not None and normalised.norm_obs:
            mean, variance = (getattr(normalised.obs_rms, name).tolist() for name in ("mean", "var"))
            normalisation = Normalisation(mean, variance, normalised.epsilon, normalised.clip_obs)
        add_to_archive(partial, normalisation, _prices_of(env))
    return file


def _prices_of(env: VecEnv) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest price of the environments, by name; empty for environments without prices."""
    if not env.has_attr("price_ranges"):  # `get_attr` would end the process of an environment without it
        return {}
    ranges = env.get_attr("price_ranges")
    return {name: (min(one[name].low for one in ranges), max(one[name].high for one in ranges)) for name in ranges[0]}
