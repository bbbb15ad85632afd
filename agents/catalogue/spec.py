"""One run as data: all that ``alma run`` is told about it, so that another process, or machine, can make it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import alma_env
from agents import catalogue, runs
from agents.anytime import AnytimeAgent
from agents.methods import METHODS, method_for
from agents.policy_specs import policy_from
from agents.recipes import recipe_for
from alma_env import AlmaEnv
from alma_env.registration import TEXT_ID


@dataclass(frozen=True)
class RunSpec:
    """What is to be run.

    Attributes:
        env: environment id.
        agent: agent id.
        width: units, channels or experts; None: the recipe's.
        wait: waiting time in mega-batches; None where ``policy`` decides, or where the method trains at every tick.
        policy: when to train, as ``alma run --policy`` has it; None for a fixed waiting time.
        replay: whether to train on everything so far.
        seed: of the stream and the agent.
        settings: hyper-parameters of the agent and keywords of the environment, as ``--set`` has them.
        engine: how a stage is computed.
        device: where.
        threads: of PyTorch in the process that makes the run; the last bits depend on it.
        record: also score on the validation parts of the whole stream.
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

    def as_dict(self) -> dict[str, Any]:
        """As plain data that JSON gives back; ``RunSpec(**data)`` is the same run."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain: dict[str, Any] = json.loads(json.dumps({**data, "settings": dict(self.settings)}))
        return plain

    def digest(self) -> str:
        """What tells this run from every other one, the versions that it is computed with included: hexadecimal."""
        return digest_of({**self.as_dict(), "versions": runs.versions()})

    def but_seed(self) -> str:
        """What runs have in common that differ in the seed alone: hexadecimal."""
        return digest_of({**self.as_dict(), "seed": None})

    def __str__(self) -> str:
        """In words, without what is as usual.

        >>> str(RunSpec("Digits-ALMA-v0", width=8, wait=5, settings={"epochs": 2}))
        'Digits-ALMA-v0: sm 8, wait 5, epochs=2, seed 0'
        """
        when = self.policy or (None if self.wait is None else f"wait {self.wait}")
        words = [
            self.agent if self.width is None else f"{self.agent} {self.width}",
            when,
            "replay" if self.replay else None,
            *(f"{name}={value}" for name, value in self.settings.items()),
            *(
                f"{f.name}={getattr(self, f.name)}"
                for f in dataclasses.fields(self)
                if f.name in ("engine", "device", "threads", "record") and getattr(self, f.name) != f.default
            ),
            f"seed {self.seed}",
        ]
        return f"{self.env}: {', '.join(word for word in words if word is not None)}"

    @property
    def names_files(self) -> bool:
        """Whether it names files, whose content may change while the names stay."""
        return self.env == TEXT_ID or (self.policy is not None and ".zip" in self.policy)

    def make_env(self) -> AlmaEnv:
        """Its environment. Runs with the same ``env`` and the same keywords of it may share one.

        Raises:
            ValueError, AlmaError: there is no such environment, or a keyword is wrong.
        """
        protocol, _ = catalogue.split_keywords(self.env, self.settings)
        return alma_env.make(self.env, **protocol)

    def make_agent(self, env: AlmaEnv, on_epoch: Callable[[int], None] | None = None) -> AnytimeAgent:
        """Its agent, which has not run.

        Raises:
            ValueError, TypeError: there is no such agent, or it does not take one of the settings.
        """
        _, hyperparameters = catalogue.split_keywords(self.env, self.settings)
        when: dict[str, Any]
        if self.policy is not None:
            backbone = recipe_for(env.data.name).backbone
            when = {"policy": policy_from(self.policy, grows=method_for(self.agent, backbone).grows)}
        else:
            when = {"wait": 1 if self.wait is None else self.wait, "replay": self.replay}
        return catalogue.make(
            self.agent,
            env,
            width=self.width,
            seed=self.seed,
            engine=self.engine,
            device=self.device,
            on_epoch=on_epoch,
            **when,
            **hyperparameters,
        )

    @property
    def trains_at_every_tick(self) -> bool:
        """Whether the method leaves no choice of a waiting time."""
        return self.agent in METHODS and METHODS[self.agent].always


def digest_of(data: Any) -> str:
    """Of plain data, however its mappings are ordered: 16 hexadecimal digits, which no two of a million runs share.

    >>> digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
