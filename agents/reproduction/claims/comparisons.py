"""Comparisons of finished runs: runs by their settings, the compared quantities, and their differences over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

from agents.analysis.interpolation import at_amounts
from agents.analysis.statistics import pairs_by_seed
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import NO_EQUAL, NOT_RUN, PairedComparison, Prediction
from agents.runs.load import FinishedRun

RunsBySeed = Mapping[int, FinishedRun]


class Quantity(NamedTuple):
    """A number of a run: its name in reports, and the function that returns it."""

    name: str
    value: Callable[[FinishedRun], float]

    def by_seed(self, runs: RunsBySeed) -> dict[int, float]:
        """Return the number of each run."""
        return {seed: self.value(run) for seed, run in runs.items()}


CER = Quantity("CER", lambda run: float(run.score.cer))
FINAL_ERROR = Quantity("final error", lambda run: run.columns.error[-1])
TRAINING_FLOPS = Quantity("training FLOPs", lambda run: float(run.score.paper_flops))
MEAN_SIZE = Quantity("parameters, mean over ticks", lambda run: run.score.mem / len(run.columns))
FINAL_SIZE = Quantity("parameters at the end", lambda run: float(run.columns.parameters[-1]))
INFERENCE_FLOPS = Quantity("inference FLOPs at the end", lambda run: float(run.columns.inference_flops[-1]))


def error_at(tick: int, name: str = "error") -> Quantity:
    """Return the error at a tick as a quantity."""
    return Quantity(name, lambda run: run.columns.error[tick])


class Picker:
    """Picks runs of one environment by the values of their configuration.

    Attributes:
        missing: the values that no run has, once each.
    """

    def __init__(self, runs: Sequence[FinishedRun], env: str) -> None:
        self.missing: list[dict[str, Any]] = []
        self._runs: dict[tuple[Any, Any], list[FinishedRun]] = {}
        for run in runs:
            config = run.run_config
            if config.env == env:
                self._runs.setdefault((config.agent.id, config.agent.width), []).append(run)

    def __call__(self, **values: Any) -> RunsBySeed:
        """Return the runs with these values by seed, for each seed the first one.

        Names and values are those of `RunConfig.get`; the agent and its width are needed. Without ``replay`` these are
        runs without replay.
        """
        values = {"replay": False, **values}
        picked: dict[int, FinishedRun] = {}
        for run in self._runs.get((values["agent"], values["width"]), ()):
            if all(run.run_config.get(name, None) == value for name, value in values.items()):
                picked.setdefault(run.seed, run)
        if not picked and values not in self.missing:
            self.missing.append(values)
        return picked


# By the id of a finding: the statement of the paper, and the function that compares the picked runs in a setup.
Findings = Mapping[str, tuple[str, Callable[[Picker, Setup], Sequence[PairedComparison]]]]


def compare(
    label: str,
    these: RunsBySeed,
    those: RunsBySeed,
    quantity: Quantity,
    predicted: Prediction = "below",
    *,
    of_those: Quantity | None = None,
    within: float = 0.0,
) -> PairedComparison:
    """Compare a quantity of these runs with the same quantity, or the quantity ``of_those``, of those runs.

    For the prediction ``close``, ``within`` is the tolerance as a fraction of the mean of those runs.
    """
    ones, others = quantity.by_seed(these), (of_those or quantity).by_seed(those)
    return compare_pairs(label, quantity.name, pairs_by_seed(ones, others), predicted, within=within)


def compare_pairs(
    label: str,
    quantity: str,
    pairs: Mapping[int, tuple[float, float]],
    predicted: Prediction = "below",
    *,
    within: float = 0.0,
    missing: str = NOT_RUN,
) -> PairedComparison:
    """Compare two numbers of each seed, the first one minus the second one; ``within`` as for `compare`."""
    differences = {seed: one - other for seed, (one, other) in pairs.items()}
    scale = mean((abs(one) + abs(other)) / 2 for one, other in pairs.values()) if pairs else 1.0
    tolerance = within * mean(abs(other) for _, other in pairs.values()) if pairs else 0.0
    return PairedComparison(label, quantity, differences, predicted, tolerance, scale or 1.0, missing)


def compare_at_equal(
    amount: Quantity, label: str, these: RunsBySeed, by_width: Sequence[RunsBySeed], predicted: Prediction = "above"
) -> PairedComparison:
    """Compare the CER of runs with the CER of another method at an equal size or cost.

    The CER of the other method is interpolated between its widths, see `agents.analysis.interpolation`; the amount is
    the mean number of parameters, or the training FLOPs. If no run is left, the verdict is `NO_EQUAL`, or `NOT_RUN` if
    each seed lacks a width.
    """
    widths = [{seed: (amount.value(run), CER.value(run)) for seed, run in runs.items()} for runs in by_width]
    values = at_amounts(amount.by_seed(these), widths)
    pairs = {seed: (CER.value(these[seed]), values[seed]) for seed in sorted(values)}
    has_all = any(all(seed in runs for runs in by_width) for seed in these)
    return compare_pairs(label, CER.name, pairs, predicted, missing=NO_EQUAL if has_all else NOT_RUN)
