"""A policy that was learned: a Stable-Baselines3 model in the place of a rule."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.growth import growth as read_growth
from agents.policies import Decision, Progress
from agents.waiting.actions import KINDS, Actions
from agents.waiting.features import feature_space, features_of
from alma_env import meter

_NEEDS = "pip install 'alma-env[rl]'"


@dataclass(frozen=True)
class LearnedPolicy:
    """Decides as a trained PPO, A2C or DQN does, by its likeliest or best action.

    It was trained on a decision environment or a surrogate, whose observation it gets here from the stream's progress.
    What it computes is charged to the running meter, as phase ``policy``.

    Args:
        path: what ``model.save(path)`` of Stable-Baselines3 wrote.
        replay: where its actions are wait and train alone: train on everything gathered so far.
        growth: there, when to grow, see ``agents.growth``.
        grows: whether the learner can grow; where it cannot, no decision grows it, as in the environments.

    Attributes:
        digest: of the file's bytes, by which the record of a run knows the policy.

    Raises:
        ValueError: the file is missing, or holds no model for these observations and actions; or there is no such
            schedule of growth, or it is given although the model itself decides about replay and growth.
    """

    path: str | Path = field(repr=False, compare=False)
    replay: bool = False
    growth: str = "never"
    grows: bool = True
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.path)
        if not path.is_file():
            raise ValueError(f"policy={str(path)!r}: there is no such file; give what model.save(path) wrote")
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "digest", hashlib.sha256(path.read_bytes()).hexdigest()[:16])
        read_growth(self.growth)
        if self._kind != "train" and (self.replay or self.growth != "never"):
            raise ValueError(
                f"replay={self.replay}, growth={self.growth!r} with policy={str(path)!r}: the model decides about "
                "them; leave them out"
            )

    def as_plain_data(self) -> dict[str, Any]:
        """Digest and fields, for the record of a run; the file may lie elsewhere when the run goes on."""
        return {"name": "learned", "digest": self.digest, "replay": self.replay, "growth": self.growth}

    @property
    def _model(self) -> Any:
        return _loaded(str(self.path), self.digest)

    @property
    def _kind(self) -> str:
        kind = _kind_of(self._model.action_space)
        assert kind is not None  # `_loaded` has looked
        return kind

    def __call__(self, now: Progress, /) -> Decision:
        """What the model would do at this tick; nothing is drawn."""
        with meter.phase("policy"):
            action, _ = self._model.predict(features_of(now), deterministic=True)
        decision = Actions(self._kind, self.grows).decision(action)
        if self._kind != "train" or not decision.train:
            return decision
        return Decision(True, self.replay, read_growth(self.growth)(now))


def _kind_of(space: Any) -> str | None:
    """How the actions of this space are written; None where they are no decisions."""
    return next((kind for kind in KINDS if Actions(kind).space() == space), None)


@lru_cache(maxsize=8)
def _loaded(path: str, digest: str) -> Any:
    """The model of a file with these bytes.

    Raises:
        ValueError: Stable-Baselines3 cannot read it, or it is a model of something else.
    """
    try:
        from stable_baselines3 import A2C, DQN, PPO
    except ImportError as error:
        raise ValueError(f"policy={path!r}: the package stable-baselines3 is missing; {_NEEDS}") from error
    failures = []
    for algorithm in (PPO, A2C, DQN):  # the file does not say which of them it is
        try:
            model = algorithm.load(path, device="cpu")
        except Exception as error:  # the library raises whatever its parts do
            failures.append(f"{algorithm.__name__}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        seen, done = model.observation_space, model.action_space
        if seen != feature_space() or _kind_of(done) is None:
            raise ValueError(
                f"policy={path!r}: its observations are {seen}, its actions {done}; a policy that decides when to wait "
                "is trained on an environment such as MNIST-ALMA-Wait-v0"
            )
        return model
    raise ValueError(
        f"policy={path!r}: not a model of PPO, A2C or DQN ({'; '.join(failures)}); give what model.save wrote"
    )
