"""The setups of the findings: the stream, widths and waiting times that the paper compares."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Setup:
    """The setup of a family of findings, in the paper or at a smaller scale."""

    env: str
    widths: tuple[int, ...]  # units, channels or experts, in ascending order
    waits: tuple[int, ...] = ()  # from the greedy learner's to the tardy learner's
    middle: tuple[int, ...] = ()  # the waiting times between these that the findings name
    methods: tuple[str, ...] = ()  # the methods that the findings compare
    sizes: tuple[str, ...] = ()  # for text, the model sizes that the paper calls base and large
    updates: int = 0  # for text, of a stage on one mega-batch
    more_updates: tuple[int, ...] = ()  # for text, other numbers of updates with which the growing methods are compared
    note: str = ""  # differences from the paper

    @property
    def greedy(self) -> int:
        """The shortest waiting time."""
        return self.waits[0]

    @property
    def tardy(self) -> int:
        """The longest waiting time, B."""
        return self.waits[-1]

    @property
    def growing_waits(self) -> tuple[int, ...]:
        """The waiting times with several trainings: all but the longest, at which nothing grows or is replayed."""
        return self.waits[:-1]

    @property
    def growing(self) -> tuple[str, ...]:
        """The methods that grow one network."""
        return tuple(agent for agent in self.methods if agent in ("gmoe", "ff"))


def read_setup(family: str, scale: str) -> Setup:
    """Read the setup of a family of findings: the values of the paper, some of them replaced by those of the scale.

    Raises:
        KeyError: there is no such family.
    """
    table = _table()[family]
    values = {name: value for name, value in table.items() if not isinstance(value, dict)} | table.get(scale, {})
    fields: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
    return Setup(**fields)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "setups.toml").read_text(encoding="utf-8"))
