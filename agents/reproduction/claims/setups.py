"""What a group of findings is about: the stream, the widths and the waiting times that the paper compares."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FAMILIES = ("cifar", "mnist", "text", "ablation")


@dataclass(frozen=True)
class Setting:
    """One experiment of the paper, or what stands for it at a smaller scale.

    Attributes:
        env: environment id.
        widths: units, channels or experts, ascending.
        waits: waiting times, from the greedy to the tardy learner's.
        middle: those in between that the findings name.
        sizes: of text, the size that the paper calls base, and that it calls large.
        updates: of text, those of a stage on one mega-batch.
        note: what stands for what, where that is so.
    """

    env: str
    widths: tuple[int, ...]
    waits: tuple[int, ...] = ()
    middle: tuple[int, ...] = ()
    sizes: tuple[str, ...] = ()
    updates: int = 0
    note: str = ""

    @property
    def greedy(self) -> int:
        """The shortest waiting time."""
        return self.waits[0]

    @property
    def tardy(self) -> int:
        """The longest, B."""
        return self.waits[-1]


def setting(family: str, scale: str) -> Setting:
    """The paper's, with what the scale has in place of some of it.

    Raises:
        KeyError: there is no such family.
    """
    of_family = dict(_table()[family])
    replaced: dict[str, Any] = of_family.pop(scale, {})
    values = {name: value for name, value in of_family.items() if not isinstance(value, dict)} | replaced
    lists: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Setting(**lists)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "settings.toml").read_text(encoding="utf-8"))
