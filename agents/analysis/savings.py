"""What training FLOPs buy: the CER that a doubling of the training FLOPs saves, by method.

A method has a point for each width, at the waiting time that is best for this width. Training FLOPs are the paper's: 6
per forward multiply-add of a training example, plus growth. The slope of a method is that of a least-squares line
through its points: CER against the base-2 logarithm of the FLOPs. The line is fitted seed by seed, so the interval of
the slope is over seeds. A line through the logarithms of the CER gives the saved part of the CER. The points of a
method are on neither line, so each step between neighbouring widths has its own slope. Members, experts and replay cost
FLOPs, too: each point also has the slope from the single model of its width, without replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from agents.analysis.schedules.best_waits import best_waits
from agents.analysis.seed_groups import SeedGroup
from agents.analysis.statistics import Interval

SAME_FLOPS = 1.05  # points whose FLOPs differ by a smaller factor have no slope


@dataclass(frozen=True)
class Step:
    """The step from one point to another one with more training FLOPs.

    Attributes:
        start, end: the widths of the two.
        flops: geometric mean of the training FLOPs of the two.
        saved: CER saved per doubling of the training FLOPs; None if the two share no seed.
    """

    start: int
    end: int
    flops: float
    saved: Interval | None


@dataclass(frozen=True)
class Savings:
    """The points of one method, in ascending order of training FLOPs, and its slopes.

    Attributes:
        method: the method, with the hyper-parameters in which the settings of the stream differ.
        replay: whether it trains with replay.
        points: the runs of each width at its best waiting time.
        saved: CER saved per doubling of the training FLOPs, fitted to all points; None for one point, for points with
            equal FLOPs, and if no seed has all points.
        part_saved: part of the CER saved per doubling, between 0 and 1 where more FLOPs save CER.
        steps: from each point to the next with more training FLOPs.
        from_single: from the single model of each width, without replay, to the method; empty if the stream has no
            such runs, or several kinds of them.
    """

    method: str
    replay: bool
    points: Sequence[SeedGroup]
    saved: Interval | None
    part_saved: Interval | None
    steps: Sequence[Step]
    from_single: Sequence[Step]


def savings(groups: Sequence[SeedGroup]) -> list[Savings]:
    """Return the savings of each method with each choice of replay; runs without training FLOPs are left out."""
    methods: dict[tuple[str, bool], list[SeedGroup]] = {}
    for one in best_waits(groups, several=False):
        if training_flops(one.best) > 0:
            methods.setdefault((one.method, one.replay), []).append(one.best)
    single = [points for (_, replay), points in methods.items() if points[0].method_id == "sm" and not replay]
    by_width = {point.width: point for point in single[0]} if len(single) == 1 else {}
    return [_savings(method, replay, points, by_width) for (method, replay), points in methods.items()]


def training_flops(group: SeedGroup) -> float:
    """Return the mean training FLOPs of a seed group, by the paper's rule."""
    return group.interval(lambda score: score.paper_flops).mean


def _savings(method: str, replay: bool, points: Sequence[SeedGroup], single: Mapping[int | None, SeedGroup]) -> Savings:
    ordered = sorted(points, key=training_flops)
    elasticity = _by_seed(ordered, math.log2)
    return Savings(
        method,
        replay,
        ordered,
        saved=_slope(ordered),
        part_saved=Interval.of([1 - 2**-slope for slope in elasticity]) if elasticity else None,
        steps=_steps(pairwise(ordered)),
        from_single=_steps((single[point.width], point) for point in ordered if point.width in single),
    )


def _steps(pairs: Iterable[tuple[SeedGroup, SeedGroup]]) -> list[Step]:
    """Return the steps between points; a pair whose second point does not have more FLOPs is no step."""
    steps = []
    for one, other in pairs:
        flops = training_flops(one), training_flops(other)
        if flops[1] >= SAME_FLOPS * flops[0]:
            between = math.sqrt(flops[0] * flops[1])
            steps.append(Step(one.width or 0, other.width or 0, between, _slope([one, other])))
    return steps


def _slope(points: Sequence[SeedGroup]) -> Interval | None:
    slopes = _by_seed(points, lambda total: total)
    return Interval.of(slopes) if slopes else None


def _by_seed(points: Sequence[SeedGroup], of: Callable[[float], float]) -> list[float]:
    """Return minus the slope of a function of the CER on log2 FLOPs, for each seed that all points have."""
    if len(points) < 2 or training_flops(points[-1]) < SAME_FLOPS * training_flops(points[0]):
        return []
    seeds = sorted(set.intersection(*(set(group.runs) for group in points)))
    measure = points[0].measure
    slopes = []
    for seed in seeds:
        scores = [group.runs[seed].score for group in points]
        x = np.log2([float(score.paper_flops) for score in scores])
        y = np.array([of(measure.sum(score)) for score in scores])
        slopes.append(-float(np.polyfit(x, y, 1)[0]))
    return slopes
