"""Files of learned policies: a model of Stable-Baselines3 or sb3-contrib, and what else a run must know of it.

The file is the archive that ``model.save`` writes. `agents.rl.save_policy` adds how the observations were normalised,
and from which prices the model learned, because ``model.save`` does not save them.
"""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.actions import KINDS, Actions
from agents.policies.choices import choice_space
from agents.policies.learned import features, priced_features
from agents.policies.learned.file_checks import DAMAGED, require_unchanged
from alma_env.errors import how_to_install

CHOICES = "choices"  # the kind of actions of the second version of the decision environments
_MEMBER = "observation_normalisation.json"  # of the archive
_PRICES = "prices.json"
# Module of the policy's class, which the archive names -> algorithm of sb3-contrib. Any other is PPO, A2C or DQN.
_CONTRIBUTED = {
    "sb3_contrib.common.maskable.policies": "MaskablePPO",
    "sb3_contrib.common.recurrent.policies": "RecurrentPPO",
    "sb3_contrib.qrdqn.policies": "QRDQN",
}


@dataclass(frozen=True)
class Normalisation:
    """The normalisation of observations by ``VecNormalize``.

    Attributes:
        mean, variance: of each feature.
        epsilon: added to the variance.
        clip: largest absolute value.
    """

    mean: Sequence[float]
    variance: Sequence[float]
    epsilon: float
    clip: float

    def __call__(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the normalised observation, float32."""
        scaled = (observation - np.array(self.mean)) / np.sqrt(np.array(self.variance) + self.epsilon)
        return np.asarray(np.clip(scaled, -self.clip, self.clip), np.float32)


@dataclass(frozen=True)
class Model:
    """A loaded model.

    Attributes:
        model: an algorithm of Stable-Baselines3 or sb3-contrib.
        kind: kind of its actions, see `agents.policies.actions.Actions`; `CHOICES` for `agents.policies.choices`.
        normalisation: of its observations; None if it observes them as they are.
        prices: the lowest and the highest price of the training, by name; empty if the file does not say.
    """

    model: Any
    kind: str
    normalisation: Normalisation | None
    prices: Mapping[str, tuple[float, float]]

    def predict(
        self, observation: NDArray[np.float32], memory: Any, mask: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], Any]:
        """Return the most probable or best action, and the memory for the next call.

        Args:
            observation: the features, float32 (13,), or (18,) for `CHOICES`.
            memory: what the call at the tick before returned; None at the first tick.
            mask: which actions are allowed; only MaskablePPO uses it.
        """
        if self.normalisation is not None:
            observation = self.normalisation(observation)
        masked = {"action_masks": mask} if type(self.model).__name__ == "MaskablePPO" else {}
        action, memory = self.model.predict(observation, state=memory, deterministic=True, **masked)
        return action, memory


def kind_of(model: Any, where: str) -> str:
    """Return the kind of a model's actions; `where` begins the message of an error.

    Raises:
        ValueError: a run cannot give the model its observations, or carry out its actions.
    """
    seen, done = model.observation_space, model.action_space
    actions: dict[str, spaces.Space[Any]]
    if seen.shape == (len(priced_features.FEATURES),):
        expected, actions = priced_features.feature_space(), {CHOICES: choice_space()}
    else:
        expected, actions = features.feature_space(), {kind: Actions(kind).space() for kind in KINDS}
    if seen.shape != expected.shape:
        raise ValueError(
            f"{where}: the model has observations of shape {seen.shape}, not those of a waiting policy; use a model "
            "trained on an environment such as MNIST-ALMA-Wait-v0, without a wrapper that stacks frames: a run gives "
            f"the model the observation of one tick, of shape {expected.shape}"
        )
    if seen != expected:
        raise ValueError(
            f"{where}: a wrapper, such as NormalizeObservation, changed the range of the observations that the model "
            "was trained on, and a run cannot do what the wrapper did; train without it, or under VecNormalize, which "
            "agents.rl.save_policy saves with the model"
        )
    kind = next((kind for kind, space in actions.items() if space == done), None)
    if kind is None:
        raise ValueError(
            f"{where}: the model has actions {done}, not those of a waiting policy; use a model trained on an "
            "environment such as MNIST-ALMA-Wait-v0"
        )
    return kind


def add_to_archive(
    path: Path, normalisation: Normalisation | None, prices: Mapping[str, tuple[float, float]] | None = None
) -> None:
    """Add the normalisation, or the fact that there is none, and the prices to an archive that ``model.save`` wrote."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_MEMBER, json.dumps(None if normalisation is None else asdict(normalisation)))
        if prices:
            archive.writestr(_PRICES, json.dumps(prices))


@lru_cache(maxsize=8)
def load(path: str, digest: str) -> Model:
    """Load a model from a file with this digest.

    Raises:
        ValueError: the file has changed since its digest was taken; it holds no model of a waiting policy, or its
            package is not installed; or the model was trained on normalised observations, and the file does not say
            how they were normalised.
    """
    require_unchanged(path, digest)
    failures = []
    for algorithm in _algorithms(path):
        try:
            model = algorithm.load(path, device="cpu")
        except Exception as error:  # the library has no error type of its own
            failures.append(f"{algorithm.__name__}: {_first_line(error)}")
            continue
        return Model(model, kind_of(model, f"policy={path!r}"), _normalisation(path, model), _prices(path))
    raise ValueError(
        f"policy={path!r}: not a model of PPO, A2C or DQN, or of MaskablePPO, RecurrentPPO or QRDQN "
        f"({'; '.join(failures)}); give a file that agents.rl.save_policy or model.save wrote"
    )


def _first_line(error: Exception) -> str:
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def _algorithms(path: str) -> list[Any]:
    """Return the algorithms that may have written a file."""
    try:
        from stable_baselines3 import A2C, DQN, PPO
    except ImportError as error:
        raise ValueError(
            f"policy={path!r}: the package stable-baselines3 is not installed; {how_to_install('rl')}"
        ) from error
    name = _CONTRIBUTED.get(_policy_module(path))
    if name is None:
        return [PPO, A2C, DQN]  # the file does not name its algorithm
    try:
        return [getattr(importlib.import_module("sb3_contrib"), name)]
    except ImportError as error:
        raise ValueError(
            f"policy={path!r}: a model of {name}, and the package sb3-contrib is not installed; run pip install "
            "sb3-contrib"
        ) from error


def _policy_module(path: str) -> str:
    """Return the module of the policy's class, read without unpickling; an empty text if the file does not say."""
    try:
        with zipfile.ZipFile(path) as archive:
            return str(json.loads(archive.read("data"))["policy_class"]["__module__"])
    except DAMAGED:
        return ""


def _normalisation(path: str, model: Any) -> Normalisation | None:
    space = model.observation_space
    with zipfile.ZipFile(path) as archive:
        if _MEMBER in archive.namelist():
            try:
                return _read_normalisation(archive.read(_MEMBER), space.shape)
            except DAMAGED as error:
                raise ValueError(
                    f"policy={path!r}: its {_MEMBER} holds no normalisation of the model's observations "
                    f"({_first_line(error)}); write the file again with agents.rl.save_policy(model, path)"
                ) from error
    # `model.save` does not say that VecNormalize was used, but it saves the last observations that the model saw.
    last = model._last_obs
    if last is not None and not all(space.contains(observation) for observation in np.asarray(last, np.float32)):
        raise ValueError(
            f"policy={path!r}: the model was trained on observations that VecNormalize normalised, and the file does "
            "not say how; load it with the VecNormalize it was trained with, and write it with "
            "agents.rl.save_policy(model, path)"
        )
    return None


def _prices(path: str) -> dict[str, tuple[float, float]]:
    with zipfile.ZipFile(path) as archive:
        if _PRICES not in archive.namelist():
            return {}
        try:
            saved = {
                str(name): (float(low), float(high)) for name, (low, high) in json.loads(archive.read(_PRICES)).items()
            }
            if saved.keys() != set(priced_features.PRICES) or not all(0 <= low <= high for low, high in saved.values()):
                raise ValueError(f"{saved}")
        except DAMAGED as error:
            raise ValueError(
                f"policy={path!r}: its {_PRICES} holds no ranges of prices ({_first_line(error)}); write the file "
                "again with agents.rl.save_policy(model, path)"
            ) from error
    return saved


def _read_normalisation(text: bytes, shape: tuple[int, ...]) -> Normalisation | None:
    saved = json.loads(text)
    if saved is None:
        return None
    normalisation = Normalisation(**saved)
    with np.errstate(invalid="ignore"):  # of a negative variance, which the next lines refuse
        normalised = normalisation(np.zeros(shape, np.float32))
    if normalised.shape != shape or not np.isfinite(normalised).all():
        raise ValueError(f"it makes {normalised.tolist()} of {shape[0]} zeros")
    return normalisation
