"""Comparisons of finished runs: runs by their settings, the compared quantities, and their differences over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.analysis.statistics import Interval, paired_difference
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import NO_EQUAL_SIZE, NOT_RUN, PairedComparison, Prediction
from agents.runs.load import FinishedRun

RunsBySeed = Mapping[int, FinishedRun]
Pick = Callable[..., RunsBySeed]
# By the id of a finding: the statement of the paper, and the function that compares the picked runs in a setup.
Findings = Mapping[str, tuple[str, Callable[[Pick, Setup], Sequence[PairedComparison]]]]

SM_AND_ENS = ("sm", "ens")  # the methods whose waiting times the paper compares
SIZE_MARGIN = 0.1  # of a size: the largest difference between equal sizes outside of the interpolated range


class Quantity(NamedTuple):
    """A number of a run: its name in reports, and the function that returns it."""

    name: str
    value: Callable[[FinishedRun], float]

    def by_seed(self, runs: RunsBySeed) -> dict[int, float]:
        """Return the number of each run."""
        return {seed: self.value(run) for seed, run in runs.items()}


CER = Quantity("CER", lambda run: float(run.score.cer))
FINAL_ERROR = Quantity("final error", lambda run: run.columns.error[-1])


def error_at(tick: int, name: str = "error") -> Quantity:
    """Return the error at a tick as a quantity."""
    return Quantity(name, lambda run: run.columns.error[tick])


def picker(runs: Sequence[FinishedRun], env: str) -> Pick:
    """Return a function that picks runs of one environment by the values of their configuration.

    The function takes names and values as `RunConfig.get` has them; without ``replay`` it picks runs without replay. It
    returns the runs by seed, for each seed the first run with these values.
    """
    of_env = [run for run in runs if run.run_config.env == env]

    def pick(**values: Any) -> RunsBySeed:
        values = {"replay": False, **values}
        picked: dict[int, FinishedRun] = {}
        for run in of_env:
            if all(run.run_config.get(name, None) == value for name, value in values.items()):
                picked.setdefault(run.seed, run)
        return picked

    return pick


def compare(
    label: str,
    these: RunsBySeed,
    those: RunsBySeed,
    quantity: Quantity,
    predicted: Prediction = "below",
    *,
    of_those: Quantity | None = None,
    tolerance: float = 0.0,
) -> PairedComparison:
    """Compare a quantity of these runs with the same quantity, or the quantity ``of_those``, of those runs."""
    interval = paired_difference(quantity.by_seed(these), (of_those or quantity).by_seed(those))
    return PairedComparison(label, quantity.name, interval, predicted, tolerance)


def compare_waits(
    pick: Pick,
    widths: Sequence[int],
    waits: Sequence[tuple[int, int]],
    quantity: Quantity,
    predicted: Prediction = "below",
) -> list[PairedComparison]:
    """Compare pairs of waiting times, for SM and Ens and for each width."""
    return [
        compare(
            f"{agent} {width}: w={one} − w={other}",
            pick(agent=agent, width=width, wait=one),
            pick(agent=agent, width=width, wait=other),
            quantity,
            predicted,
        )
        for agent in SM_AND_ENS
        for width in widths
        for one, other in waits
    ]


def compare_at_equal_size(label: str, grown: RunsBySeed, by_width: Sequence[RunsBySeed]) -> PairedComparison:
    """Compare the CER of runs that grow with the CER of another method at an equal number of parameters.

    The CER of the other method is interpolated between its widths, linearly in the logarithm of the mean number of
    parameters. A run at most `SIZE_MARGIN` smaller than the smallest width, or larger than the largest width, is
    compared with that width. Other runs outside of the widths are left out. If no run is left, the verdict is
    `NO_EQUAL_SIZE`, or `NOT_RUN` if a width was not run.
    """
    beyond = False
    differences = []
    for seed, run in grown.items():
        others = [runs[seed] for runs in by_width if seed in runs]
        if not others:
            continue
        sizes, values = zip(*sorted((_mean_size(other), CER.value(other)) for other in others), strict=True)
        size = _mean_size(run)
        if sizes[0] / (1 + SIZE_MARGIN) <= size <= sizes[-1] * (1 + SIZE_MARGIN):
            differences.append(CER.value(run) - float(np.interp(np.log(size), np.log(sizes), values)))
        else:
            beyond = beyond or len(others) == len(by_width)
    interval = Interval.of(differences) if differences else None
    return PairedComparison(label, CER.name, interval, "above", missing=NO_EQUAL_SIZE if beyond else NOT_RUN)


def _mean_size(run: FinishedRun) -> float:
    """Return the mean number of parameters over the ticks: Mem / (B + 1)."""
    return run.score.mem / len(run.columns)
