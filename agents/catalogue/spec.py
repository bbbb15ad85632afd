"""The specification of a run: the input of ``alma run`` as data that another process or machine can read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import alma_env
from agents.catalogue import own_code
from agents.catalogue.build import build, for_method
from agents.catalogue.data_facts import DataFacts, facts_of, known_facts, split_keywords
from agents.catalogue.methods import method_for
from agents.catalogue.resolve import resolve_agent
from agents.catalogue.run_config import RunConfig
from agents.learners.anytime import AnytimeAgent
from agents.policies import Policy
from agents.policies.specs import LEARNED, policy_from
from agents.policies.validation import check_types
from alma_env import AlmaEnv
from alma_env.registration import NAMESPACE, TEXT_ID


@dataclass(frozen=True)
class RunSpec:
    """The specification of a run.

    Attributes:
        env: environment id.
        agent: agent id, or a function of your own as ``FILE.py:FUNCTION``, see `agents.catalogue.own_code`.
        width: units, channels or experts; None: the recipe's.
        wait: waiting time in mega-batches; None if ``policy`` decides, or if the method trains at every tick.
        policy: a policy in the form of ``alma run --policy``; None: a fixed waiting time.
        replay: whether to train on all mega-batches so far.
        seed: seed of the stream and the agent.
        settings: hyper-parameters of the agent and keywords of the environment, as in ``--set``.
        engine: engine that computes a stage.
        device: device of the agent.
        threads: PyTorch threads of the process; the last bits of the results depend on it.
        record: whether to score each stage on the validation parts of the whole stream, too.

    Raises:
        ValueError: a policy is given beside a waiting time or replay, a value has the wrong type, or the seed is
            negative.
    """

    env: str
    agent: str = "sm"
    width: int | None = None
    wait: int | None = None
    policy: str | None = None
    replay: bool = False
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "auto"
    device: str = "auto"
    threads: int = 1
    record: bool = False

    def __post_init__(self) -> None:
        for name, value in check_types({name: getattr(self, name) for name in _TYPES}, _TYPES, EXAMPLES).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "env", self.env.removeprefix(NAMESPACE))  # one name in folders and records
        object.__setattr__(self, "settings", {name: _to_python(value) for name, value in self.settings.items()})
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more; use seed=0")
        for one in ("width", "wait", "policy", "replay", "seed", "engine", "device"):
            if one in self.settings:
                given = f"{one}={self.settings[one]!r}"
                raise ValueError(f"settings have {given}: {one} is a field of its own; use RunSpec(…, {given})")
        if self.policy is None:
            return
        for name, setting in (("wait", self.wait is not None), ("replay", self.replay)):
            if setting:
                raise ValueError(
                    f"{name}={getattr(self, name)} with policy={self.policy!r}: a policy decides when to train and on "
                    f"what; leave {name} out, and write replay as policy='doubling:replay=true'"
                )

    def as_dict(self) -> dict[str, Any]:
        """Return the specification as plain JSON values; ``RunSpec(**data)`` is the same run.

        Raises:
            ValueError: a setting is no JSON value.
        """
        settings: dict[str, Any] = {}
        for name, value in self.settings.items():
            try:
                settings[name] = json.loads(json.dumps(value))
            except TypeError:
                rule = "must be a number, a text, true, false, none, or a list of them"
                raise ValueError(f"{name}={value!r}: {rule}, because the record of a run is JSON") from None
        return {**vars(self), "settings": settings}

    def digest(self) -> str:
        """Return a hexadecimal digest of the specification and the versions of the software."""
        return digest_of({**self.as_dict(), "versions": versions()})

    def __str__(self) -> str:
        """Return the specification as text, without default values.

        >>> str(RunSpec("Digits-ALMA-v0", width=8, wait=5, settings={"epochs": 2}))
        'Digits-ALMA-v0: sm 8, wait 5, epochs=2, seed 0'
        """
        when = self.policy or (None if self.wait is None else f"wait {self.wait}")
        options = {name: getattr(self, name) for name in ("engine", "device", "threads", "record")}
        parts = [
            self.agent if self.width is None else f"{self.agent} {self.width}",
            when,
            "replay" if self.replay else None,
            *(f"{name}={value}" for name, value in self.settings.items()),
            *(f"{name}={value}" for name, value in options.items() if value != getattr(RunSpec, name)),
            f"seed {self.seed}",
        ]
        return f"{self.env}: {', '.join(part for part in parts if part is not None)}"

    def with_seed(self, seed: int) -> RunSpec:
        """Return the run with another seed of the stream and the agent."""
        return dataclasses.replace(self, seed=seed)

    @property
    def names_files(self) -> bool:
        """Whether the specification names files; their content may change under the same name.

        The networks of the package, ``policy="learned"``, are such files.
        """
        policy = self.policy or ""
        policy_file = policy.partition(":")[0] == LEARNED or any(kind in policy for kind in (".zip", ".npz"))
        return self.env == TEXT_ID or policy_file or own_code.is_own(self.agent) or "data" in self.settings

    def known_facts(self) -> DataFacts:
        """Return the facts about the environment that are known without creating it."""
        return known_facts(self.env, split_keywords(self.env, self.settings)[0])

    def make_env(self) -> AlmaEnv:
        """Call `alma_env.make`. Runs with the same ``env`` and the same keywords of it can share the environment."""
        return alma_env.make(self.env, **split_keywords(self.env, self.settings)[0])

    def make_agent(self, env: AlmaEnv, on_epoch: Callable[[int], None] | None = None) -> AnytimeAgent:
        """Create the agent for its environment; ``on_epoch`` is called after every epoch."""
        facts = facts_of(env)
        if own_code.is_own(self.agent):
            return own_code.make(self.agent, env, self.seed, self._given(facts))
        return build(resolve(self, facts), env, policy=self._policy(facts), on_epoch=on_epoch)

    def _policy(self, facts: DataFacts) -> Policy | None:
        if self.policy is None:
            return None
        if own_code.is_own(self.agent):
            return policy_from(self.policy)
        method = method_for(self.agent, facts.recipe.backbone)
        return for_method(policy_from(self.policy, grows=method.grows), method)

    def _given(self, facts: DataFacts) -> dict[str, Any]:
        """The options and hyper-parameters that differ from their defaults, for a function of the user."""
        names = ("width", "wait", "replay", "engine", "device")
        options = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(RunSpec, name)}
        policy = self._policy(facts)
        settings = split_keywords(self.env, self.settings)[1]
        return {**options, **({} if policy is None else {"policy": policy}), **settings}


EXAMPLES: dict[str, Any] = {  # a value of each field but settings
    "env": "Digits-ALMA-v0",
    "agent": "sm",
    "width": 32,
    "wait": 5,
    "policy": "doubling",
    "replay": True,
    "seed": 0,
    "engine": "auto",
    "device": "auto",
    "threads": 1,
    "record": True,
}
_OPTIONAL = {"width": int | None, "wait": int | None, "policy": str | None}
_TYPES = {name: type(example) for name, example in EXAMPLES.items()} | _OPTIONAL


def _to_python(value: Any) -> Any:
    """Return a value with NumPy scalars as Python scalars, also in lists: the record of a run is JSON."""
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(_to_python, value)) if type(value) in (list, tuple) else value


def resolve(spec: RunSpec, facts: DataFacts) -> RunConfig:
    """Return the configuration of a specified run: one pure step that neither loads data nor creates a network.

    Its computation is empty. Engine and device are as specified (``auto`` included) until an agent is built.

    Raises:
        ValueError: an agent or a hyper-parameter is unknown, or a value breaks its rule.
    """
    policy = spec._policy(facts)
    wait = 1 if spec.wait is None else spec.wait
    when: dict[str, Any] = {} if policy is not None else {"wait": wait, "replay": spec.replay}
    agent = resolve_agent(
        spec.agent,
        facts,
        policy=policy,
        width=spec.width,
        seed=spec.seed,
        engine=spec.engine,
        device=spec.device,
        **when,
        **split_keywords(spec.env, spec.settings)[1],
    )
    return RunConfig(spec.env, facts.protocol, agent, spec.seed)


def versions() -> dict[str, str]:
    """Return the versions of the software that computes a run; the last bits of the results depend on them."""
    return {
        "alma-env": alma_env.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def distinct(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return the specifications with each digest once, in order."""
    return list({spec.digest(): spec for spec in specs}.values())


def digest_of(data: Any) -> str:
    """Return a digest of plain data: 16 hexadecimal digits, independent of the order of keys.

    >>> digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
