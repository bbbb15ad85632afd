"""Finished runs by what they were run with, and what is measured of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agents.finished import FinishedRun
from agents.statistics import Interval, paired

Measure = Callable[[FinishedRun], float]
OfSeeds = Mapping[int, FinishedRun]


class Index:
    """Runs in one environment, to be picked by agent, width, waiting time, replay and any hyper-parameter.

    Args:
        runs: runs; two that differ only in what nobody asks for cannot be told apart here.
        env: id of the environment; runs in others are passed over.
    """

    def __init__(self, runs: Sequence[FinishedRun], env: str) -> None:
        self._runs = [(_attributes(run.config), run) for run in runs if run.config["env"] == env]

    def pick(self, **where: Any) -> dict[int, FinishedRun]:
        """The runs that have all of these, by seed; the first of two with the same seed.

        ``agent`` is the agent's id; ``wait`` and ``replay`` stand for the policy, and replay is off where it is not
        asked for.
        """
        where = {"replay": False, **where}
        found: dict[int, FinishedRun] = {}
        for attributes, run in self._runs:
            if all(attributes.get(name) == value for name, value in where.items()):
                found.setdefault(run.seed, run)
        return found


def _attributes(config: Mapping[str, Any]) -> dict[str, Any]:
    agent = dict(config["agent"])
    policy = agent.pop("policy", None)
    when = policy if isinstance(policy, Mapping) else {"policy": policy}
    return {**agent.pop("stage", {}), **agent, **when, "agent": agent["id"]}


def cer(run: FinishedRun) -> float:
    """CER, a sum of fractions over the ticks 0..B."""
    return float(run.score.cer)


def final_error(run: FinishedRun) -> float:
    """Error at the last tick, a fraction; of text the perplexity."""
    return run.columns.error[-1]


def error_at(tick: int) -> Measure:
    """Error at a tick."""
    return lambda run: run.columns.error[tick]


def mean_error(first: int, last: int) -> Measure:
    """Mean error over the ticks first..last."""
    return lambda run: float(run.columns.errors[first : last + 1].mean())


def mean_size(run: FinishedRun) -> float:
    """Parameters, mean over the ticks: Mem / (B + 1)."""
    return run.score.mem / len(run.columns)


def difference(these: OfSeeds, those: OfSeeds, measure: Measure, other: Measure | None = None) -> Interval | None:
    """Mean of these − those, paired over seeds; None where no seed was run with both.

    Args:
        these: runs by seed.
        those: likewise.
        measure: of these.
        other: of those; where it is not given, the same.
    """
    return paired(of(these, measure), of(those, other or measure))


def of(runs: OfSeeds, measure: Measure) -> dict[int, float]:
    """A measure of each seed's run."""
    return {seed: measure(run) for seed, run in runs.items()}


def at_equal_size(
    these: OfSeeds, by_width: Sequence[OfSeeds], measure: Measure = cer, margin: float = 0.1
) -> tuple[Interval | None, bool]:
    """Mean of these − what the other method would have with as many parameters, paired over seeds.

    What it would have is interpolated between its widths, linearly in the logarithm of the mean number of parameters;
    nothing is extrapolated but ``margin`` of a size beyond its smallest and largest, whose value is then taken.

    Returns:
        The interval; None where no seed has these runs, and those of the other method on both sides of their size.
        And whether the latter alone is missing: its runs of all widths were made, but none is of that size.
    """
    beyond = False
    left: dict[int, float] = {}
    right: dict[int, float] = {}
    for seed, run in these.items():
        points = sorted((mean_size(runs[seed]), measure(runs[seed])) for runs in by_width if seed in runs)
        size = mean_size(run)
        if not points:
            continue
        if not points[0][0] / (1 + margin) <= size <= points[-1][0] * (1 + margin):
            beyond = beyond or all(seed in runs for runs in by_width)
        else:
            sizes, values = zip(*points, strict=True)
            left[seed] = measure(run)
            right[seed] = float(np.interp(np.log(size), np.log(sizes), values))
    return paired(left, right), beyond and not left
