"""The configuration of a run: the one definition of what a run is, for planned runs and for finished runs.

A configuration has three parts. The *identity* is everything that the results depend on. The *setting* is the identity
without its seeds: runs with equal settings differ by chance only. The *computation* (engine, device, threads, versions,
machine, batch size of answers) changes speed and the last bits of the results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agents.catalogue.agent_config import AgentConfig
from agents.policies.records import canonical

# Values of the configuration, by dotted path, that belong to the computation.
_COMPUTATION = {
    "agent.engine",
    "agent.device",
    "agent.together",
    "agent.stage.validation_batch",
    "protocol.evaluation_batch_size",
}
_SEEDS = {"seed", "agent.seed", "agent.policy.seed"}
BUDGETS = ("flops_budget", "parameter_budget")
_REQUIRED: Any = object()


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run.

    Attributes:
        env: id of the environment.
        protocol: everything that the stream and the scores depend on, see ``AlmaEnv.protocol``.
        agent: the configuration of the agent.
        seed: seed of the stream and of the agent.
        computation: threads, versions and machine, and the number of ranks; empty for a planned run. Earlier versions
            could train several runs in one batch, and recorded their number (``batched``).
    """

    env: str
    protocol: Mapping[str, Any]
    agent: AgentConfig
    seed: int
    computation: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RunConfig:
        """Read the record of a run, written by this version or an earlier one.

        Raises:
            ValueError: the record has no environment, protocol, agent or seed, or the protocol has no ticks.
        """
        for name, kind in (("env", str), ("protocol", Mapping), ("agent", Mapping), ("seed", int)):
            if not isinstance(record.get(name), kind):
                raise ValueError(f"{name}={record.get(name)!r}: the configuration of a run needs {name}")
        if not isinstance(ticks := record["protocol"].get("ticks"), int):
            raise ValueError(f"protocol.ticks={ticks!r}: the configuration of a run needs the length of its stream")
        agent = dict(record["agent"])
        if "policy" in agent:
            agent["policy"] = canonical(agent["policy"])  # the module of the policy may have moved
        rest = {name: value for name, value in record.items() if name not in ("env", "protocol", "agent", "seed")}
        return cls(record["env"], record["protocol"], AgentConfig(agent), record["seed"], rest)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values, for ``RunConfig.from_dict``."""
        plain: dict[str, Any] = json.loads(json.dumps({**self.computation, **self._record()}))
        return plain

    def _record(self) -> dict[str, Any]:
        return {"env": self.env, "protocol": self.protocol, "agent": self.agent.record, "seed": self.seed}

    @property
    def ticks(self) -> int:
        """Number of mega-batches of the stream, B."""
        return int(self.protocol["ticks"])

    @property
    def label(self) -> str:
        """Method, width and policy as text: the values that most tables and figures compare."""
        return self.agent.label

    @cached_property
    def values(self) -> dict[str, str]:
        """All values of the record except the seeds of stream and agent, as text, by dotted path."""
        return {path: _text(value) for path, value in leaves(self.to_dict()) if path not in ("seed", "agent.seed")}

    @cached_property
    def identity(self) -> dict[str, str]:
        """Everything that the results depend on, as text, by dotted path."""
        ranks = {"ranks": self.computation["ranks"]} if "ranks" in self.computation else {}
        return {path: _text(value) for path, value in leaves(self._record() | ranks) if path not in _COMPUTATION}

    @cached_property
    def setting(self) -> dict[str, str]:
        """The identity without the seeds of the stream, the agent and a random policy."""
        return {path: value for path, value in self.identity.items() if path not in _SEEDS}

    @cached_property
    def stream(self) -> dict[str, str]:
        """The part of the setting that the mega-batches depend on: environment and protocol, without budgets."""
        return {path: value for path, value in self.setting.items() if _is_stream(path)}

    @cached_property
    def learner(self) -> dict[str, str]:
        """The setting without the policy."""
        return {path: value for path, value in self.setting.items() if not is_schedule(path)}

    def agrees(self, other: RunConfig) -> bool:
        """Return whether two identities are equal in all values that both of them have.

        The record of an earlier version may lack values of this version, and a planned run does not know all values of
        its protocol. But the code of an agent of the user is no such value: the paper's methods have none.
        """
        same = (self.agent.policy, self.agent.is_own) == (other.agent.policy, other.agent.is_own)
        return same and all(other.identity.get(path, value) == value for path, value in self.identity.items())

    def with_seed(self, seed: int) -> RunConfig:
        """Return the configuration with another seed of the stream and the agent."""
        return replace(self, seed=seed, agent=AgentConfig({**self.agent.record, "seed": seed}))

    def get(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return a value by name or by dotted path.

        Args:
            name: ``env``, ``seed``, ``agent`` (the id), ``width``, ``wait``, ``replay``, ``growth``; any
                hyper-parameter; or a dotted path such as ``agent.stage.epochs``.
            default: the result if there is no such value.

        Raises:
            KeyError: there is no such value and no default.

        >>> config = RunConfig("e", {"ticks": 4}, AgentConfig({"id": "sm", "stage": {"epochs": 2}}), seed=1)
        >>> config.get("agent"), config.get("epochs"), config.get("protocol.ticks"), config.get("members", 1)
        ('sm', 2, 4, 1)
        """
        if name in self._by_name:
            return self._by_name[name]
        found: Any = self._plain
        for key in name.split("."):
            if not isinstance(found, dict) or key not in found:
                if default is _REQUIRED:
                    raise KeyError(name)
                return default
            found = found[key]
        return found

    @cached_property
    def _plain(self) -> dict[str, Any]:
        return self.to_dict()

    @cached_property
    def _by_name(self) -> dict[str, Any]:
        agent = self.agent
        named = {"env": self.env, "seed": self.seed, "agent": agent.id, "width": agent.width, "wait": agent.wait}
        named |= {"replay": agent.replay, "growth": agent.growth}
        return {**agent.stage, **agent.record, **agent.schedule, **named}


def is_schedule(path: str) -> bool:
    """Return whether a path of a setting belongs to the policy.

    An agent of the user records the given options ``wait`` and ``replay`` beside its policy.
    """
    return path in ("agent.policy", "agent.wait", "agent.replay") or path.startswith("agent.policy.")


def _is_stream(path: str) -> bool:
    return path == "env" or (path.startswith("protocol.") and path.removeprefix("protocol.") not in BUDGETS)


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a nested mapping with its dotted path."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    """Return a value as text; equal numbers have equal texts."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int:
        return str(value)  # many times as fast as JSON
    return value if isinstance(value, str) else json.dumps(value)
