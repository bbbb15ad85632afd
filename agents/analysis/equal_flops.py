"""The order of methods at equal FLOPs, by three counts of the FLOPs: where does the count change the order?

The paper counts 6 FLOPs per forward multiply-add of a training example. Its first layer is charged an input gradient
that nobody computes, and validation is free. Comp is what was executed: without this gradient, with validation and with
growth steps.

A cell is a setting: its FLOPs are the budget, by each count. Every other method with the same schedule and replay is
compared at this budget. Its CER is interpolated between its widths, linearly in the logarithm of the FLOPs, seed by
seed, see `agents.analysis.interpolation`. A budget that is at most a tenth outside of the widths of a method is
compared with the nearest width; a budget further away has no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agents.analysis.interpolation import at_amounts
from agents.analysis.seed_groups import SeedGroup
from agents.analysis.statistics import Interval
from alma_env import Score

LOWER, HIGHER, UNDECIDED = "lower", "higher", "undecided"

# The names of the counts and the FLOPs of a score. Growth steps are in the paper's measure, but not in its rule of 6.
COUNTS: dict[str, Callable[[Score], float]] = {
    "training only": lambda score: score.paper_flops - score.comp_by_phase.get("growth", 0),
    "paper_flops": lambda score: score.paper_flops,
    "Comp": lambda score: score.comp,
}


@dataclass(frozen=True)
class Opponent:
    """Another method at the FLOPs of a cell.

    Attributes:
        method: the other method.
        differences: CER of the cell minus CER of the other method at equal FLOPs, by count, paired by seed.
    """

    method: str
    differences: Mapping[str, Interval]

    @property
    def tested(self) -> bool:
        """Whether the differences have intervals, which needs two common seeds."""
        return all(interval.half is not None for interval in self.differences.values())

    def verdict(self, count: str) -> str:
        """Return whether the cell has a lower or higher CER by a count; undecided if no interval leaves out 0."""
        interval = self.differences[count]
        if not self.tested or abs(interval.mean) <= (interval.half or 0):
            return UNDECIDED
        return LOWER if interval.mean < 0 else HIGHER


@dataclass(frozen=True)
class Cell:
    """A setting and the other methods at its FLOPs; `opponents` have a difference by each count."""

    setting: SeedGroup
    opponents: Sequence[Opponent]

    def order(self, count: str) -> tuple[str, ...]:
        """Return the methods in ascending order of their mean CER at the FLOPs of the setting."""
        above = {self.setting.method: 0.0} | {one.method: -one.differences[count].mean for one in self.opponents}
        return tuple(sorted(above, key=above.__getitem__))


def cells(groups: Sequence[SeedGroup]) -> list[Cell]:
    """Return the cells of one stream that have a comparison, in the order of the seed groups."""
    peers: dict[tuple[str, bool], dict[str, list[SeedGroup]]] = {}
    for group in groups:
        peers.setdefault((group.when, group.replay), {}).setdefault(group.method, []).append(group)
    found = []
    for group in groups:
        others = {name: own for name, own in peers[group.when, group.replay].items() if name != group.method}
        compared = (Opponent(name, _differences(group, own)) for name, own in others.items())
        opponents = [one for one in compared if one.differences]
        if opponents:
            found.append(Cell(group, opponents))
    return found


def _differences(setting: SeedGroup, widths: Sequence[SeedGroup]) -> dict[str, Interval]:
    """Return the differences by count; empty unless every count has the same, at least one, seeds."""
    by_count = {name: _by_seed(setting, widths, count) for name, count in COUNTS.items()}
    seeds = set.intersection(*(set(values) for values in by_count.values()))
    if not seeds:
        return {}
    return {name: Interval.of([values[seed] for seed in sorted(seeds)]) for name, values in by_count.items()}


def _by_seed(setting: SeedGroup, widths: Sequence[SeedGroup], count: Callable[[Score], float]) -> dict[int, float]:
    total = setting.measure.sum
    budgets = {seed: flops for seed, run in setting.runs.items() if (flops := count(run.score)) > 0}
    points = [
        {seed: (flops, total(run.score)) for seed, run in group.runs.items() if (flops := count(run.score)) > 0}
        for group in widths
    ]
    # Rounded, because the interpolation of equal numbers may differ in the last bits.
    return {
        seed: round(total(setting.runs[seed].score) - value, 9) for seed, value in at_amounts(budgets, points).items()
    }
