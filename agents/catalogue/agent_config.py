"""The configuration of an agent: method, network, stage and policy, as a run folder records them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_FIXED_WAIT = {"wait", "replay", "growth", "stop", "restart"}  # of a fixed waiting time; others have a name, or more
_T = TypeVar("_T")


@dataclass(frozen=True)
class AgentConfig:
    """The configuration of an agent, as recorded in a run folder.

    ``agents.make`` records all values below. A custom agent may lack some of them, or record something else under their
    names; then a property is None or empty.

    Attributes:
        record: the configuration as plain JSON values.
    """

    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id of the method, as in ``agents.make``; ``agent`` for an agent without an id."""
        return str(self.record.get("id", "agent"))

    @property
    def is_own(self) -> bool:
        """Whether code of the user made the agent, see `agents.catalogue.own_code`; its id is then no method."""
        return "code" in self.record

    @property
    def method(self) -> str | None:
        """The id of the method; None for an agent of the user, whose id may be any word, such as the name of its file.

        Code of the user that calls ``agents.make`` returns an agent with a method; its record has the kind of network.

        >>> AgentConfig({"id": "ff", "code": {"file": "ff.py"}}).method is None
        True
        """
        return None if self.is_own and self.backbone is None else self.id

    @property
    def backbone(self) -> str | None:
        """The kind of network: ``mlp``, ``vgg19`` or ``switch``."""
        return _of_type(self.record.get("backbone"), str)

    @property
    def width(self) -> int | None:
        """Units per layer, channels per convolution, or experts per Switch layer."""
        return _of_type(self.record.get("width"), int)

    @property
    def stage(self) -> Mapping[str, Any]:
        """The settings of a stage: the fields of ``agents.StageSettings``."""
        stage = self.record.get("stage")
        return stage if isinstance(stage, Mapping) else {}

    @property
    def policy(self) -> Any:
        """The record of the policy: the fields of a schedule, or text for other policies."""
        return self.record.get("policy")

    @property
    def schedule(self) -> Mapping[str, Any]:
        """The fields of the policy; empty if the policy is recorded as text."""
        return self.policy if isinstance(self.policy, Mapping) else {}

    @property
    def wait(self) -> int | None:
        """The waiting time in mega-batches; None for other policies than a fixed waiting time.

        >>> AgentConfig({"policy": {"wait": 5, "replay": True}}).wait
        5
        >>> AgentConfig({"policy": {"wait": 5, "factor": 2.0}}).wait is None  # the fields of another schedule
        True
        """
        whole = self.schedule.get("stop", 1) == 1 and self.schedule.get("restart", 0) == 0
        fixed = whole and self.schedule.keys() <= _FIXED_WAIT
        return _of_type(self.schedule.get("wait"), int) if fixed else None

    @property
    def replay(self) -> bool | str | None:
        """Which earlier data every stage trains on: False none, True all, or ``last:k``; None if not recorded."""
        replay = self.schedule.get("replay")
        return replay if isinstance(replay, bool | str) else None

    @property
    def growth(self) -> str | None:
        """The schedule of growth; None if not recorded."""
        return _of_type(self.schedule.get("growth"), str)

    @property
    def when(self) -> str:
        """The policy as text, without the seed of a random policy.

        >>> AgentConfig({"policy": {"wait": 5, "replay": True, "growth": "never"}}).when
        'wait 5, replay'
        >>> AgentConfig({"policy": {"name": "random", "probability": 0.1, "seed": 3, "replay": False}}).when
        'random(probability=0.1)'
        """
        return self._when({name: value for name, value in self.schedule.items() if name != "seed"})

    @property
    def policy_text(self) -> str:
        """The policy as text, with the seed of a random policy."""
        return self._when(self.schedule)

    def _when(self, schedule: Mapping[str, Any]) -> str:
        if not self.policy:
            return "at every tick"
        if not schedule:
            return re.sub(r"^[\w.]*\.(?=\w+(\(|$))", "", str(self.policy))  # a dataclass or function without its module
        if self.wait is not None:
            text = f"wait {self.wait}"
        else:
            own = [f"{name}={value}" for name, value in schedule.items() if name not in ("name", "replay", "growth")]
            text = f"{schedule.get('name', 'policy')}({', '.join(own)})"
        return text + (", replay" if self.replay is True else f", replay {self.replay}" if self.replay else "")

    @property
    def divergence_remedy(self) -> str:
        """What to try after a training that diverged; not every agent has a learning rate."""
        known = "learning_rate" in {**self.stage, **self.record}
        return "try a smaller learning_rate" if known else "try a training that changes the weights less"

    @property
    def label(self) -> str:
        """Method, width and policy as text.

        >>> AgentConfig({"id": "sm", "width": 32, "policy": {"wait": 5, "replay": False}}).label
        'sm 32, wait 5'
        """
        name = self.id if self.width is None else f"{self.id} {self.width}"
        return f"{name}, {self.policy_text}" if self.policy else name


def _of_type(value: object, kind: type[_T]) -> _T | None:
    """Return a recorded value, or None if a custom agent recorded something else under its name."""
    return value if isinstance(value, kind) else None
