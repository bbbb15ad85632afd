"""The front of CER and FLOPs that several schedules reach together, and its hypervolume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.analysis.schedules.costs import ScheduleCosts
from agents.analysis.statistics import Interval

MOST_PASSES = 2.0  # a fixed wait costs one; replay of everything, several


@dataclass(frozen=True)
class Front:
    """How good a trade of CER for FLOPs several schedules offer together.

    Attributes:
        runs: stream and learner.
        schedules: what the schedules are.
        hypervolume: share of the rectangle of CER and full passes that they dominate, mean over seeds. The rectangle
            ends at the CER of the untrained predictor, and at `MOST_PASSES`.
        difference: that of the first family of schedules minus this one, paired by seed.
    """

    runs: str
    schedules: str
    hypervolume: Interval
    difference: Interval


def fronts_of(
    runs: str, families: Mapping[str, Sequence[ScheduleCosts]], untrained: Mapping[int, float]
) -> list[Front]:
    """Return the front of each family of schedules that is not empty, beside that of the first family.

    Args:
        runs: stream and learner.
        families: the schedules by what they are; all have runs of the seeds of `untrained`.
        untrained: CER of the untrained predictor, by seed.
    """
    volumes = {
        name: [
            hypervolume([(one.passes[seed], one.cer[seed]) for one in family], (MOST_PASSES, worst))
            for seed, worst in untrained.items()
        ]
        for name, family in families.items()
        if family
    }
    first = next(iter(volumes.values()))
    return [
        Front(runs, name, Interval.of(own), Interval.of([one - other for one, other in zip(first, own, strict=True)]))
        for name, own in volumes.items()
    ]


def hypervolume(points: Iterable[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Return the share of the rectangle from (0, 0) to ``reference`` that points dominate, from 0 to 1.

    Both coordinates are costs: a point dominates all that is not lower in either. A point outside of the rectangle
    dominates nothing of it.

    >>> hypervolume([(0.5, 0.5)], (1.0, 1.0)), hypervolume([(0.5, 0.5), (0.25, 1.0), (2.0, 0.1)], (1.0, 1.0))
    (0.25, 0.25)
    >>> hypervolume([(0.5, 0.5), (0.0, 0.75)], (1.0, 1.0))
    0.375
    """
    area, height = 0.0, reference[1]
    for across, up in sorted(points):
        if across < reference[0] and up < height:
            area += (reference[0] - across) * (height - up)
            height = up
    return area / (reference[0] * reference[1])
