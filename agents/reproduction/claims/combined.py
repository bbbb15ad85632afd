"""One test of all comparisons of a finding, and the number of seeds that a test needs.

The combined test asks whether the comparisons of a finding are on the paper's side on average. Per seed it takes the
mean over the comparisons of the distance from the predicted limit (`PairedComparison.support`); then it is Student's t
over seeds. Two properties matter. The comparisons of a seed share streams and often runs, so they depend on each other;
the mean per seed needs no assumption about this. The distances are fractions of the compared values, so a comparison of
large errors does not outweigh one of small errors.

A comparison of closeness takes its limit on the side of its measured mean. So noise alone brings the distances of many
such comparisons to the other side of the limit: the test is evidence for closeness, and never against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev

import numpy as np

from agents.analysis.statistics import ALPHA, Interval, p_value
from agents.reproduction.claims.verdicts import UNDECIDED, PairedComparison, verdict

POWER = 0.8
MOST_SEEDS = 100  # a larger number of seeds is reported as more than this


@dataclass(frozen=True)
class Combined:
    """The combined test of comparisons: the mean distance from the predicted limits per seed, as fractions."""

    per_seed: Sequence[float]
    comparisons: int  # number of comparisons in the mean
    close: bool = False  # whether a comparison predicts closeness

    @cached_property
    def interval(self) -> Interval:
        """The mean over seeds and its 95 % interval; positive on the paper's side."""
        return Interval.of(self.per_seed)

    @property
    def verdict(self) -> str:
        """Whether the comparisons are on the paper's side on average."""
        if self._is_no_evidence:
            return UNDECIDED
        return verdict(self.interval.mean, p_value(self.interval.mean, stdev(self.per_seed), len(self.per_seed)))

    @property
    def seeds_needed(self) -> int | None:
        """The number of seeds that would decide the test, see `seeds_to_decide`."""
        return None if self._is_no_evidence else seeds_to_decide(self.interval.mean, stdev(self.per_seed))

    @property
    def _is_no_evidence(self) -> bool:
        return self.close and self.interval.mean < 0


def combine(comparisons: Sequence[PairedComparison]) -> Combined | None:
    """Return the combined test of comparisons; None if no two seeds are shared by more than half of the comparisons.

    The mean of each seed needs the same comparisons. So the test uses the seeds that its comparisons share, and leaves
    out comparisons with few or other seeds if more is gained in seeds: of all choices with more than half of the
    comparisons, it has the most (comparisons × (seeds − 1)). The choice depends on which runs are finished, not on
    their results.
    """
    best: tuple[int, list[PairedComparison], list[int]] = (0, [], [])
    tested = [one for one in comparisons if len(one.differences) > 1]
    choices = [[one for one in tested if len(one.differences) >= len(least.differences)] for least in tested]
    choices += [[one for one in tested if one.differences.keys() >= seeds.differences.keys()] for seeds in tested]
    for chosen in choices:
        if 2 * len(chosen) <= len(tested):
            continue
        shared = set.intersection(*(set(one.differences) for one in chosen))
        size = len(chosen) * (len(shared) - 1)
        if size > best[0]:
            best = size, chosen, sorted(shared)
    _, chosen, seeds = best
    if not chosen:
        return None
    supports = [one.support for one in chosen]
    per_seed = [mean(support[seed] for support in supports) for seed in seeds]
    return Combined(per_seed, len(chosen), any(one.predicted == "close" for one in chosen))


def seeds_to_decide(distance: float, deviation: float, tests: int = 1) -> int | None:
    """Return the number of seeds with which a t-test decides with a probability of 80 %; None above `MOST_SEEDS`.

    Args:
        distance: the measured distance of the mean from the limit, taken as the true one.
        deviation: the measured standard deviation of one seed, taken as the true one.
        tests: number of tests that share the 5 %: in a step of Holm's procedure, those that are not decided yet.

    >>> seeds_to_decide(1.0, 1.0), seeds_to_decide(0.1, 1.0)
    (10, None)
    """
    if deviation == 0:
        return 2 if distance else None
    from scipy.special import nctdtr, stdtrit

    seeds = np.arange(2, MOST_SEEDS + 1)
    limit = stdtrit(seeds - 1, 1 - ALPHA / tests / 2)
    enough = nctdtr(seeds - 1, abs(distance) / deviation * np.sqrt(seeds), limit) <= 1 - POWER
    return int(seeds[enough.argmax()]) if enough.any() else None


def needs_seeds(comparison: PairedComparison, verdict: str, tests: int) -> str:
    """Return as text how many seeds would decide an undecided comparison; empty for other verdicts."""
    if verdict != UNDECIDED:
        return ""
    if comparison.deviation is None:
        return "unknown"
    return seeds_text(seeds_to_decide(comparison.distance, comparison.deviation, tests))


def seeds_text(seeds: int | None) -> str:
    """Return a number of seeds as text.

    >>> seeds_text(12), seeds_text(None)
    ('12', 'more than 100')
    """
    return f"more than {MOST_SEEDS}" if seeds is None else str(seeds)
