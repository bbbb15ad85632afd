"""A learned policy: a trained model of Stable-Baselines3 or sb3-contrib that decides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.policies.actions import Actions
from agents.policies.choices import allowed_choices, decision_of
from agents.policies.growing import growth as read_growth
from agents.policies.learned import features, priced_features
from agents.policies.learned.file_checks import digest_of
from agents.policies.learned.model_files import CHOICES, Model, load
from agents.policies.learned.priced_features import PRICES, checked_prices
from agents.policies.progress import Decision, Progress
from agents.policies.replaying import replayed, shortest
from alma_env.metering import meter

_ANY = (0.0, math.inf)  # the range of a price if the file does not say


@dataclass(frozen=True)
class LearnedPolicy:
    """A trained model as a policy: PPO, A2C, DQN, or sb3-contrib's MaskablePPO, RecurrentPPO, QRDQN.

    It takes the most probable or best action. The model was trained on a decision environment or a surrogate. The
    policy computes the same observation from the progress of a run, normalises it as in the training, and hands the
    memory of a recurrent model from one tick to the next. Create a new policy for each agent. Its cost is charged to
    the running meter, in the phase ``policy``.

    Args:
        path: file that `agents.rl.save_policy` wrote, or ``model.save(path)``, which leaves out a normalisation.
        replay: which earlier mega-batches a training repeats, see `agents.policies.replaying`; only for models whose
            actions are wait and train.
        growth: when to grow, see ``agents.policies.growing``; only for models whose actions are wait and train.
        grows: whether the learner can grow. If it cannot, no decision grows it, as in the environments. `agents.make`
            changes it to False for a method that does not grow.
        free_growth: whether growth leaves the FLOPs of its trainings as they are, as that of gens does; `agents.make`
            sets it to that of the method.
        pass_price, memory_price: the prices at which the model decides, in the units of `agents.rl.DecisionEnv`; only
            for models that were trained on this environment or its surrogate. A price beyond those of the training,
            which `agents.rl.save_policy` writes into the file, counts as the nearest of them.

    Attributes:
        digest: digest of the file's bytes, which identifies the policy in the record of a run.

    Raises:
        ValueError: the file is missing, its model has other observations or actions, or it does not say how the
            observations were normalised; or a value of replay or growth does not exist; or replay or growth is given
            for a model that decides about them, or a price for a model that does not see prices.
    """

    path: str | Path = field(repr=False, compare=False)
    replay: bool | str = False
    growth: str = "never"
    grows: bool = True
    free_growth: bool = False
    pass_price: float = 0.0
    memory_price: float = 0.0
    digest: str = field(init=False)
    _memory: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # of a recurrent model

    def __post_init__(self) -> None:
        path = Path(self.path)
        if not path.is_file():
            raise ValueError(
                f"policy={str(path)!r}: file not found; give the path of a file that agents.rl.save_policy or "
                "model.save wrote"
            )
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "digest", digest_of(path))
        object.__setattr__(self, "replay", shortest(self.replay))
        read_growth(self.growth)
        if self._model.kind != "train" and (self.replay or self.growth != "never"):
            raise ValueError(
                f"replay={self.replay}, growth={self.growth!r} with policy={str(path)!r}: the model itself decides "
                "when to replay and grow; leave replay and growth out"
            )
        if self.growth != "never" and not self.grows:
            raise ValueError(
                f"growth={self.growth!r} with policy={str(path)!r}: the learner cannot grow; leave growth out, or take "
                "an agent that grows, such as gens"
            )
        for name, price in checked_prices(self).items():
            object.__setattr__(self, name, price)
            if price and self._model.kind != CHOICES:
                raise ValueError(
                    f"{name}={price:g} with policy={str(path)!r}: the model does not see prices; leave it out, or use "
                    "a model trained on an environment such as Digits-ALMA-Wait-v1"
                )

    def as_plain_data(self) -> dict[str, Any]:
        """Return the record: digest and fields, but not the path, since the file may move before a run continues."""
        record = {"name": "learned", "digest": self.digest, "replay": self.replay, "growth": self.growth}
        record |= {} if self.grows or self._model.kind == "train" else {"grows": False}  # changes masks and features
        if self._model.kind != CHOICES:
            return record
        record |= {"free_growth": True} if self.grows and self.free_growth else {}  # changes features
        return record | {name: getattr(self, name) for name in PRICES}

    @property
    def _model(self) -> Model:
        return load(str(self.path), self.digest)

    def __call__(self, now: Progress, /) -> Decision:
        """Return the model's deterministic decision for this tick."""
        at = {"tick": now.tick, "pending": now.pending, "stages": now.stages}
        if self._model.kind == CHOICES:
            prices = {name: float(np.clip(getattr(self, name), *self._model.prices.get(name, _ANY))) for name in PRICES}
            seen = priced_features.features_of(now, **prices, grows=self.grows, free_growth=self.free_growth)
            choice = self._action(now, seen, allowed_choices(**at, grows=self.grows))
            return decision_of(choice, now.ticks, grows=self.grows)
        actions = Actions(self._model.kind, self.grows)
        decision = actions.decision(self._action(now, features.features_of(now), actions.masks(**at)))
        if self._model.kind != "train" or not decision.train:
            return decision
        replay = replayed(self.replay)
        return Decision(True, replay.any, read_growth(self.growth)(now), replay.window)

    def _action(self, now: Progress, seen: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        memory = None if now.tick == 1 else self._memory.get("state")
        with meter.phase("policy"):
            action, self._memory["state"] = self._model.predict(seen, memory, mask)
        return action

    def state_dict(self) -> dict[str, Any]:
        """Return the memory of a recurrent model as tensors; an empty dictionary for any other model."""
        memory = self._memory.get("state")
        return {} if memory is None else {"state": [torch.from_numpy(part) for part in memory]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self._memory.clear()
        if "state" in state:
            self._memory["state"] = tuple(part.numpy() for part in state["state"])
