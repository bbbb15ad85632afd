"""The cost of a sweep, computed before it runs: training FLOPs in closed form, hours of one core, and bytes on disk.

Hours are FLOPs divided by the FLOPs per second of each method on one core, as measured (see ``throughput.toml``). They
include validation and the answers on the test set.
"""

from __future__ import annotations

import math
import operator
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from agents.catalogue.effort import effort_of
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve

ROW_BYTES = 245  # one tick in a ledger; a checkpoint has the rows again, and the parameters
FILE_BYTES = 25_000  # all other files of a run
# Methods that are as fast as a measured method.
_AS_FAST_AS = {"moe": "gmoe", "gens-moe": "gmoe", "oracle": "sm"}
# Data whose images have the size of those of a measured data set.
_AS_FAST_ON = {"FashionMNIST": "MNIST", "EMNIST": "MNIST", "CIFAR100": "CIFAR10"}


@dataclass(frozen=True)
class Cost:
    """The cost of some runs."""

    runs: int = 0
    training: float = 0.0  # FLOPs by the paper's rule
    seconds: float = 0.0  # of one core
    bytes: float = 0.0  # on disk

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, astuple(self), astuple(other)))


def cost_of(specs: Iterable[RunSpec]) -> Cost:
    """Return the sum of the costs of runs.

    Raises:
        ValueError: the waiting time of a run is not fixed, so its trainings are not known beforehand.
    """
    return sum(map(_cost, specs), Cost())


def _cost(spec: RunSpec) -> Cost:
    facts = spec.known_facts()
    config = resolve(spec, facts)
    effort = effort_of(config, facts)
    rate, growth_rate, start = _throughput(config, facts.data)
    members = int(config.agent.record.get("members", 1))
    if config.agent.id in ("gens", "gens-moe"):
        members *= 1 + effort.stages[-1].growth_steps
    size = FILE_BYTES + 2 * ROW_BYTES * (facts.ticks + 1) + 4 * effort.parameters * members
    at_rate = effort.training_flops - effort.growth_flops + effort.other_flops
    seconds = start + at_rate / rate + effort.growth_flops / growth_rate
    return Cost(1, effort.training_flops, seconds, size)


def _throughput(config: RunConfig, data: str) -> tuple[float, float, float]:
    """Return the FLOPs per second of a run on one core, those of its growth steps, and the seconds before its start."""
    table = _measured()[_AS_FAST_ON.get(data, data)]
    agent = _AS_FAST_AS.get(config.agent.id, config.agent.id)
    of_wait = table.get(str(config.agent.wait), {})
    width = config.get("width")
    rate = _at_width(of_wait.get(agent, table[agent]), width)
    grows = f"{agent}-growth"
    return rate, _at_width(table[grows], width) if grows in table else rate, float(table["start"])


def _at_width(rates: Mapping[str, float], width: int) -> float:
    """Return FLOPs per second: linear in the logarithms between two measured widths, constant beyond the outermost."""
    widths = [int(measured) for measured in rates]
    return 1e9 * math.exp(np.interp(math.log(width), np.log(widths), np.log(list(rates.values()))))


@cache
def _measured() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "throughput.toml").read_text(encoding="utf-8"))
