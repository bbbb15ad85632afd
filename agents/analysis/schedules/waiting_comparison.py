"""Comparison of the schedules of finished runs, paired by seed, with the best fixed waiting time in hindsight."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.analysis.labels import append_differences, differing_paths, name_values
from agents.analysis.measures import marks_of, require_error_rate
from agents.analysis.prices import Prices
from agents.analysis.seed_groups import SeedGroup, find_seed_groups, streams
from agents.analysis.statistics import Interval, lowest, paired_difference
from agents.catalogue.run_config import is_schedule
from agents.runs.load import FinishedRun

_WAIT = ("agent.policy.wait", "agent.wait")  # paths of the waiting time in a setting


@dataclass(frozen=True)
class ComparedSchedule:
    """The costs of the runs of one schedule, which differ only in their seeds."""

    name: str  # the schedule as text
    wait: int | None  # None for other policies than a fixed waiting time
    kind: str  # in what a fixed waiting time differs from others of the learner, such as replay; may be empty
    costs: Mapping[int, float]  # by seed: CER, and FLOPs and parameters at their prices
    comps: Mapping[int, float]  # Comp by seed
    marks: str = ""  # of the runs, see `measures.marks_of`

    @property
    def cost(self) -> Interval:
        """The mean cost over the seeds."""
        return Interval.of(list(self.costs.values()))


@dataclass(frozen=True)
class WaitingComparison:
    """All schedules of one learner on one stream."""

    title: str  # stream and learner
    schedules: Sequence[ComparedSchedule]  # in ascending order of mean cost
    notes: Sequence[str] = ()  # for each run of the stream that was left out as a duplicate

    @property
    def best_fixed(self) -> ComparedSchedule | None:
        """The fixed waiting time with the lowest mean cost over common seeds; None without a fixed waiting time."""
        fixed = {place: one.costs for place, one in enumerate(self.schedules) if one.wait is not None}
        return self.schedules[lowest(fixed)] if fixed else None

    def against_best_fixed(self, schedule: ComparedSchedule) -> Interval | None:
        """Return the cost of a schedule minus that of `best_fixed`, paired by seed; None without common seeds."""
        best = self.best_fixed
        return None if best is None or schedule is best else paired_difference(schedule.costs, best.costs)


def compare(runs: Sequence[FinishedRun], prices: Prices | None = None) -> list[WaitingComparison]:
    """Compare the schedules of each learner on each stream; without prices the cost is the CER.

    Raises:
        ValueError: the runs of a stream have no error rate, because they are on text.
    """
    comparisons = []
    for title, same_learner, notes in learners_of(runs):
        require_error_rate(title, same_learner[0].first.run_config.protocol)
        whens = [group.first.run_config.agent.when for group in same_learner]
        names = append_differences(whens, [group.setting for group in same_learner])
        fixed = [group.setting for group in same_learner if group.wait is not None]
        paths = [path for path in differing_paths(fixed) if path not in _WAIT]
        schedules = [
            _schedule(name, _kind(name_values(group.setting, paths)), group, prices or Prices())
            for name, group in zip(names, same_learner, strict=True)
        ]
        schedules.sort(key=lambda schedule: schedule.cost.mean)
        comparisons.append(WaitingComparison(title, schedules, notes))
    return comparisons


def learners_of(runs: Sequence[FinishedRun]) -> Iterator[tuple[str, list[SeedGroup], list[str]]]:
    """Yield each learner on each stream: its title, its seed groups, which differ in their schedules, and notes.

    There is a note for each run of the stream that was left out as a duplicate.
    """
    for stream, runs_of_stream in streams(runs).items():
        groups, notes = find_seed_groups(runs_of_stream)
        learners: dict[str, list[SeedGroup]] = {}
        for group in groups:
            learners.setdefault(json.dumps(_without_policy(group), sort_keys=True), []).append(group)
        firsts = [same_learner[0] for same_learner in learners.values()]
        names = [group.agent if group.width is None else f"{group.agent} {group.width}" for group in firsts]
        titles = append_differences(names, [_without_policy(group) for group in firsts])
        for title, same_learner in zip(titles, learners.values(), strict=True):
            yield f"{stream}, {title}", same_learner, notes


def _without_policy(group: SeedGroup) -> dict[str, str]:
    return {path: value for path, value in group.setting.items() if not is_schedule(path)}


def _kind(values: Sequence[str]) -> str:
    """Return values in which fixed waiting times differ as text: ``replay`` for replay=true, nothing for false."""
    return ", ".join(value.removesuffix("=true") for value in values if not value.endswith("=false"))


def _schedule(name: str, kind: str, group: SeedGroup, prices: Prices) -> ComparedSchedule:
    return ComparedSchedule(
        name=name,
        wait=group.wait,
        kind=kind if group.wait is not None else "",
        costs=group.values(prices.cost),
        comps=group.values(lambda score: score.comp),
        marks=marks_of(run.score for run in group.runs.values()),
    )
