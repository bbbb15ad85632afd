"""The way of a learner through the stream: its error and its costs after each quarter (figure 5 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from agents.analysis.seed_groups import SeedGroup
from agents.analysis.statistics import Interval
from agents.catalogue.effort import networks
from agents.learners.anytime import StageRecord
from agents.runs.load import FinishedRun

QUARTERS = 4


@dataclass(frozen=True)
class Quarter:
    """A learner after a part of the stream; costs are means over the seeds.

    Attributes:
        tick: 1..B.
        error: error at this tick: the fraction of wrong answers, for text the perplexity per token.
        training_flops: FLOPs up to this tick, as the paper counts them.
        parameters: parameters of the predictor of this tick.
        experts: experts of each layer in all networks of this predictor; None if the runs have no record of stages.
    """

    tick: int
    error: Interval
    training_flops: float
    parameters: float
    experts: float | None


def quarters(group: SeedGroup) -> list[Quarter]:
    """Return the learner after each quarter of the stream, without the quarters before its first training.

    A quarter ends at tick ⌈B k / 4⌉ for k = 1..4. A stream of fewer than four ticks has fewer quarters.
    """
    last = len(group.first.columns) - 1
    ticks = sorted({-(-last * part // QUARTERS) for part in range(1, QUARTERS + 1)} - {0})
    return [_quarter(group, tick) for tick in ticks if all(_trained(run, tick) for run in group.runs.values())]


def _trained(run: FinishedRun, tick: int) -> bool:
    if run.stages:  # the paper's FLOPs of a learner can be 0, or declared
        return any(stage.tick <= tick for stage in _deployed(run))
    return any(run.columns.paper_flops[: tick + 1])


def _quarter(group: SeedGroup, tick: int) -> Quarter:
    def over_seeds(of: Callable[[FinishedRun], float]) -> float:
        return mean(of(run) for run in group.runs.values())

    known = all(run.stages for run in group.runs.values())
    return Quarter(
        tick,
        Interval.of([run.columns.error[tick] for run in group.runs.values()]),
        over_seeds(lambda run: float(sum(run.columns.paper_flops[: tick + 1]))),
        over_seeds(lambda run: float(run.columns.parameters[tick])),
        over_seeds(lambda run: float(_experts(run, tick))) if known else None,
    )


def _experts(run: FinishedRun, tick: int) -> int:
    return networks(run.run_config.agent, sum(stage.grow for stage in _deployed(run) if stage.tick <= tick))


def _deployed(run: FinishedRun) -> list[StageRecord]:
    """Return the stages whose predictors answered; a budget refuses the others."""
    return [stage for stage in run.stages if not run.columns.refused[stage.tick]]
