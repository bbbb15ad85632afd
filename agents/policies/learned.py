"""A learned policy: a trained Stable-Baselines3 model that decides."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.policies.actions import KINDS, Actions
from agents.policies.features import feature_space, features_of
from agents.policies.growing import growth as read_growth
from agents.policies.progress import Decision, Progress
from alma_env.errors import how_to_install
from alma_env.metering import meter


@dataclass(frozen=True)
class LearnedPolicy:
    """A trained PPO, A2C or DQN model as a policy. It takes the most probable or best action.

    The model was trained on a decision environment or a surrogate. The policy computes the same observation from the
    progress of a run. Its cost is charged to the running meter, in the phase ``policy``.

    Args:
        path: file that ``model.save(path)`` of Stable-Baselines3 wrote.
        replay: train on everything gathered so far; only for models whose actions are wait and train.
        growth: when to grow, see ``agents.policies.growing``; only for models whose actions are wait and train.
        grows: whether the learner can grow. If it cannot, no decision grows it, as in the environments.

    Attributes:
        digest: digest of the file's bytes, which identifies the policy in the record of a run.

    Raises:
        ValueError: the file is missing, or its model has other observations or actions; or the growth schedule does not
            exist; or replay or growth is given for a model that decides about them.
    """

    path: str | Path = field(repr=False, compare=False)
    replay: bool = False
    growth: str = "never"
    grows: bool = True
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.path)
        if not path.is_file():
            raise ValueError(
                f"policy={str(path)!r}: file not found; give the path of a file that model.save(path) wrote"
            )
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "digest", hashlib.sha256(path.read_bytes()).hexdigest()[:16])
        read_growth(self.growth)
        if self._kind != "train" and (self.replay or self.growth != "never"):
            raise ValueError(
                f"replay={self.replay}, growth={self.growth!r} with policy={str(path)!r}: the model itself decides "
                "when to replay and grow; leave replay and growth out"
            )

    def as_plain_data(self) -> dict[str, Any]:
        """Return the record: digest and fields, but not the path, since the file may move before a run continues."""
        return {"name": "learned", "digest": self.digest, "replay": self.replay, "growth": self.growth}

    @property
    def _model(self) -> Any:
        return _loaded(str(self.path), self.digest)

    @property
    def _kind(self) -> str:
        kind = _kind_of(self._model.action_space)
        assert kind is not None  # checked in `_loaded`
        return kind

    def __call__(self, now: Progress, /) -> Decision:
        """Return the model's deterministic decision for this tick."""
        with meter.phase("policy"):
            action, _ = self._model.predict(features_of(now), deterministic=True)
        decision = Actions(self._kind, self.grows).decision(action)
        if self._kind != "train" or not decision.train:
            return decision
        return Decision(True, self.replay, read_growth(self.growth)(now))


def _kind_of(space: Any) -> str | None:
    """Return the kind of an action space; None if it is not a space of decisions."""
    return next((kind for kind in KINDS if Actions(kind).space() == space), None)


@lru_cache(maxsize=8)
def _loaded(path: str, digest: str) -> Any:
    """Load the model of a file. `digest` is part of the cache key."""
    try:
        from stable_baselines3 import A2C, DQN, PPO
    except ImportError as error:
        raise ValueError(
            f"policy={path!r}: the package stable-baselines3 is not installed; {how_to_install('rl')}"
        ) from error
    failures = []
    for algorithm in (PPO, A2C, DQN):  # the file does not name its algorithm
        try:
            model = algorithm.load(path, device="cpu")
        except Exception as error:  # the library has no error type of its own
            failures.append(f"{algorithm.__name__}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        seen, done = model.observation_space, model.action_space
        if seen != feature_space() or _kind_of(done) is None:
            raise ValueError(
                f"policy={path!r}: the model has observations {seen} and actions {done}, not those of a waiting "
                "policy; use a model trained on an environment such as MNIST-ALMA-Wait-v0"
            )
        return model
    raise ValueError(
        f"policy={path!r}: not a model of PPO, A2C or DQN ({'; '.join(failures)}); give a file that model.save wrote"
    )
