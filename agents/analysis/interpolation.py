"""The value of a method at a given amount, such as its CER at given FLOPs, interpolated between its widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np

MARGIN = 0.1  # of an amount: how far it may lie outside of the widths


def at_amounts(amounts: Mapping[int, float], widths: Sequence[Mapping[int, tuple[float, float]]]) -> dict[int, float]:
    """Return the value at an amount for each seed, linear in the logarithm of the amount between two widths.

    An amount that is at most a fraction `MARGIN` outside of the widths gets the value of the nearest width; a seed with
    an amount further outside is left out. Of widths with equal amounts, the lowest value counts.

    The seeds may have different widths. A seed is left out if a width that another seed has lies between its two: the
    line between distant widths is above the convex curve of the others.

    Args:
        amounts: the amount for each seed, above 0.
        widths: for each width the pair (amount, value) for each seed.

    >>> at_amounts({0: 2.0, 1: 2.0}, [{0: (1, 9.0), 1: (1, 9.0)}, {0: (2, 5.0)}, {0: (4, 4.0), 1: (4, 4.0)}])
    {0: 5.0}
    """
    values = {}
    for seed, amount in amounts.items():
        points: dict[float, float] = {}
        absent = []
        for one in widths:
            if seed in one:
                at, value = one[seed]
                points[at] = min(value, points.get(at, value))
            elif shared := [one[other][0] for other in amounts if other in one]:
                absent.append(mean(shared))
        known = sorted(points)
        if not known or not known[0] / (1 + MARGIN) <= amount <= known[-1] * (1 + MARGIN):
            continue
        below = max((at for at in known if at <= amount), default=amount)
        above = min((at for at in known if at >= amount), default=amount)
        if not any(below < at < above for at in absent):
            values[seed] = float(np.interp(np.log(amount), np.log(known), [points[at] for at in known]))
    return values
