"""Trainings that repeat others with another seed: what differs between them is luck."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.regression import Array


@dataclass(frozen=True)
class Repeats:
    """Which trainings repeat others with another seed, after the same decisions: they differ by luck only.

    Attributes:
        number: number of each training's decisions and seed, (n,).
        first: the first training of each number, (numbers,).
        decisions: number of the decisions alone, (numbers,).
    """

    number: NDArray[np.int64]
    first: NDArray[np.int64]
    decisions: NDArray[np.int64]

    @classmethod
    def of(cls, decisions: NDArray[np.int64], seeds: NDArray[np.int64]) -> Repeats:
        """Return the repeats among trainings with these numbers of the decisions so far, and these seeds."""
        _, first, number = np.unique(np.stack([decisions, seeds]), axis=1, return_index=True, return_inverse=True)
        # NumPy 2.0.0 returns the numbers as a row.
        return cls(number.ravel(), first, np.unique(decisions[first], return_inverse=True)[1])

    @property
    def counted(self) -> NDArray[np.bool_]:
        """The trainings that repeat others, without copies: one for each number, bool (n,)."""
        counted = np.zeros(len(self.number), bool)
        counted[self.first] = np.bincount(self.decisions)[self.decisions] > 1
        return counted

    def luck(self, values: Array) -> Array:
        """Return each value minus the mean over the seeds with the same decisions, (n,); 0 for a single seed."""
        own = values[self.first]
        mean = np.bincount(self.decisions, own) / np.bincount(self.decisions)
        return np.asarray((own - mean[self.decisions])[self.number])


def number_decisions(runs: Iterable[Array]) -> NDArray[np.int64]:
    """Number the trainings of runs: two have the same number if their runs made the same decisions up to them.

    Args:
        runs: for each run, one row per training, with what was decided.

    Returns:
        The numbers of the trainings of all runs, int64 (n,).
    """
    known: dict[tuple[int, bytes], int] = {}
    numbers = []
    for decisions in runs:
        so_far = -1
        for decision in decisions:
            so_far = known.setdefault((so_far, decision.tobytes()), len(known))
            numbers.append(so_far)
    return np.array(numbers, np.int64)
