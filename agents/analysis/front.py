"""The front of CER and FLOPs that several schedules reach together, and its hypervolume."""

from __future__ import annotations

from collections.abc import Iterable


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
