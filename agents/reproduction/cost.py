"""The cost of a sweep, computed before it runs: training FLOPs in closed form, hours of one core, and bytes on disk.

Hours are FLOPs divided by the FLOPs per second of each method on one core, as measured (see ``throughput.toml``). They
include validation and the answers on the test set.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from types import MappingProxyType

from agents.catalogue.effort import effort_of, members_of
from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction.throughput import measured_data, rates_of

ROW_BYTES = 245  # one tick in a ledger; a checkpoint has the rows again, and the parameters
FILE_BYTES = 25_000  # all other files of a run


@dataclass(frozen=True)
class Cost:
    """The cost of some runs."""

    runs: int = 0
    training: float = 0.0  # FLOPs by the paper's rule
    seconds: float = 0.0  # of one core
    bytes: float = 0.0  # on disk

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, astuple(self), astuple(other)))

    def __mul__(self, runs: int) -> Cost:
        return Cost(self.runs * runs, *(runs * value for value in astuple(self)[1:]))


def cost_of(specs: Iterable[RunSpec], slowness: Mapping[str, float] = MappingProxyType({})) -> Cost:
    """Return the sum of the costs of runs.

    Args:
        specs: the runs.
        slowness: by measured data set, how many times as long a machine takes as the rates of the package say, see
            `agents.reproduction.calibration.slowness`; 1 if it is left out.

    Raises:
        ValueError: the waiting time of a run is not fixed, so its trainings are not known beforehand.
    """
    groups: dict[str, list[RunSpec]] = {}  # runs that differ in their seed cost the same
    for spec in specs:
        groups.setdefault(_key_without_seed(spec), []).append(spec)
    return sum((_cost(runs[0], slowness) * len(runs) for runs in groups.values()), Cost())


def _key_without_seed(spec: RunSpec) -> str:
    return json.dumps(vars(spec) | {"settings": dict(spec.settings), "seed": None}, sort_keys=True, default=repr)


def _cost(spec: RunSpec, slowness: Mapping[str, float]) -> Cost:
    facts = spec.known_facts()
    config = resolve(spec, facts)
    effort = effort_of(config, facts)
    rates = rates_of(config, facts.data)
    members = members_of(config.agent)
    if config.agent.id in ("gens", "gens-moe"):
        members *= 1 + effort.stages[-1].growth_steps
    size = FILE_BYTES + 2 * ROW_BYTES * (facts.ticks + 1) + 4 * effort.parameters * members
    at_rate = effort.training_flops - effort.growth_flops + effort.other_flops
    seconds = rates.start + at_rate / rates.training + effort.growth_flops / (rates.growth or rates.training)
    return Cost(1, effort.training_flops, slowness.get(measured_data(facts.data), 1) * seconds, size)
