"""The best fixed waiting time of each method, width and replay, with the waiting times that the seeds cannot exclude.

A waiting time is excluded if another one has a significantly lower CER: Student's one-sided paired t-test over common
seeds at level 0.05 / (k − 1), for k waiting times. The waiting time with the lowest expected CER is excluded by one of
its k − 1 tests with probability 0.05 at most. So the waiting times that remain are a 95 % confidence set of the best
one, although the same runs show which one looks best (multiple comparisons with the best; J. C. Hsu, 1984).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.analysis.seed_groups import SeedGroup
from agents.analysis.statistics import ALPHA, Interval, lowest, paired_difference, paired_p_value

Totals = Mapping[int, Mapping[int, float]]  # waiting time -> seed -> CER, for text the average perplexity


@dataclass(frozen=True)
class BestWait:
    """The best waiting time of one method, width and choice of replay on one stream.

    Attributes:
        method: the method, with the hyper-parameters in which the settings of the stream differ.
        width: units, channels or experts.
        replay: whether the runs train with replay.
        ticks: length of the stream in mega-batches, B.
        waits: the waiting times with runs, ascending.
        best: the runs of the waiting time with the lowest mean CER over the seeds that all waiting times share.
        not_worse: the confidence set: the best waiting time, and those that no test excludes, ascending.
        untested: those of `not_worse` that share fewer than two seeds with the best one, so that no test compares them.
        shortest: CER of the shortest waiting time minus CER of the next longer one, paired by seed; None without
            common seeds.
    """

    method: str
    width: int | None
    replay: bool
    ticks: int
    waits: tuple[int, ...]
    best: SeedGroup
    not_worse: tuple[int, ...]
    untested: tuple[int, ...]
    shortest: Interval | None

    @property
    def wait(self) -> int:
        """The best waiting time in mega-batches."""
        return self.best.wait or 0


def best_waits(groups: Sequence[SeedGroup], several: bool = True) -> list[BestWait]:
    """Return the best waiting time of each method, width and choice of replay, in the order of the seed groups.

    Args:
        groups: seed groups of one stream; those with another policy than a fixed waiting time are left out.
        several: whether to leave out methods and widths that were run with one waiting time.
    """
    learners: dict[tuple[str, int | None, bool], list[SeedGroup]] = {}
    for group in groups:
        if group.wait is not None:
            learners.setdefault((group.method, group.width, group.replay), []).append(group)
    return [_best_wait(own) for own in learners.values() if len(own) > several]


def confidence_set(totals: Totals) -> tuple[int, ...]:
    """Return the waiting times that no other one excludes, ascending; see the module.

    >>> confidence_set({1: {0: 9.0, 1: 9.1, 2: 9.2}, 10: {0: 5.0, 1: 5.2, 2: 5.1}, 50: {0: 5.3, 1: 4.8, 2: 5.6}})
    (10, 50)
    """
    level = ALPHA / max(len(totals) - 1, 1)
    return tuple(
        sorted(
            wait
            for wait, own in totals.items()
            if not any(_is_higher(own, other, level) for place, other in totals.items() if place != wait)
        )
    )


def _is_higher(these: Mapping[int, float], those: Mapping[int, float], level: float) -> bool:
    """Return whether a one-sided paired t-test shows that these values are higher; never with one common seed."""
    difference, p = paired_difference(these, those), paired_p_value(these, those)
    return difference is not None and p is not None and difference.mean > 0 and p / 2 < level


def _best_wait(own: Sequence[SeedGroup]) -> BestWait:
    ordered = sorted(own, key=lambda group: group.wait or 0)
    totals = {group.wait or 0: group.values(group.measure.sum) for group in ordered}
    lowest_wait = lowest(totals)  # of equal ones, the shortest
    best = next(group for group in ordered if (group.wait or 0) == lowest_wait)
    seeds = set(best.runs)
    not_worse = tuple(sorted({best.wait or 0, *confidence_set(totals)}))
    return BestWait(
        method=best.method,
        width=best.width,
        replay=best.replay,
        ticks=len(best.first.columns) - 1,
        waits=tuple(totals),
        best=best,
        not_worse=not_worse,
        untested=tuple(wait for wait in not_worse if wait != best.wait and len(seeds & set(totals[wait])) < 2),
        shortest=paired_difference(totals[min(totals)], totals[sorted(totals)[1]]) if len(totals) > 1 else None,
    )
