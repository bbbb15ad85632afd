"""The numbers of the paper's tables 1 and 2: perplexity after each mega-batch, of the base and the large size.

Its figures have no tables, and the unit of their CER is not known; of images only orderings can be compared.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Published:
    """A line of table 2.

    Attributes:
        size: base or large.
        agent: agent id.
        experts: in each Switch layer; of what grows, those it begins with.
        members: of an ensemble; of one that grows, those it begins with.
        wait: waiting time.
        times: updates of a stage, in those of a stage on one mega-batch.
        millions: parameters at the end.
        perplexities: after each mega-batch; None where it waits, or was not run on.
    """

    size: str
    agent: str
    experts: int
    members: int
    wait: int
    times: int
    millions: int
    perplexities: tuple[float | None, ...]


@cache
def published() -> tuple[Published, ...]:
    """All lines, in the paper's order."""
    lines = (files(__package__) / "published.csv").read_text(encoding="utf-8").splitlines()
    return tuple(_line(row) for row in csv.DictReader(lines))


def _line(row: dict[str, str]) -> Published:
    values = tuple(float(row[f"t{tick}"]) if row[f"t{tick}"] else None for tick in range(1, 5))
    names = ("experts", "members", "wait", "times", "millions")
    return Published(row["size"], row["agent"], perplexities=values, **{name: int(row[name]) for name in names})
