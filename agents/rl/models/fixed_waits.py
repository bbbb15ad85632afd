"""The error curves of fixed waiting times, which pictures of an episode show as faint lines."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agents.catalogue.run_config import RunConfig
from agents.rl.models.regression import Array
from agents.rl.models.stacked_curves import StackedCurves
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.selection import shipped_runs

EPISODES = 64
_NONE = np.zeros(EPISODES, np.int64)  # neither replay nor growth


def shown_waits(ticks: int) -> list[int]:
    """Return the waiting times of a picture: 1 and 5 times the powers of ten, and the whole stream.

    >>> shown_waits(500), shown_waits(20)
    ([1, 5, 10, 50, 100, 500], [1, 5, 10, 20])
    """
    waits = [step * 10**power for power in range(len(str(ticks))) for step in (1, 5)]
    return [*(wait for wait in waits if wait < ticks), ticks]


def ticks_of(wait: int, ticks: int) -> list[int]:
    """Return the ticks at which a fixed waiting time trains: the last one too, with fewer mega-batches.

    >>> ticks_of(5, 12)
    [5, 10, 12]
    """
    return sorted({*range(wait, ticks, wait), ticks})


def simulated(curves: StackedCurves, curve: int) -> dict[int, Array]:
    """Return the mean errors of simulated episodes at ticks 0..B, float64 (B + 1,), by waiting time.

    ``curve`` is the number of a curve. The random numbers are those of seed 0.
    """
    random, found = np.random.default_rng(0), {}
    index = np.full(EPISODES, curve)
    for wait in shown_waits(curves.ticks):
        error = np.full(EPISODES, curves.first_error[curve])
        means = np.full(curves.ticks + 1, error[0])
        last = 0
        for stages, tick in enumerate(ticks_of(wait, curves.ticks)):
            size, seen, before = (np.full(EPISODES, number) for number in (tick - last, tick, stages))
            last = tick
            error, _, _ = curves.outcome(index, error, size, seen, before, _NONE, _NONE, random)
            means[tick:] = error.mean()
        found[wait] = means
    return found


def of_recordings(recordings: Iterable[Recording]) -> dict[int, Array]:
    """Return the mean errors over the seeds at ticks 0..B, float64 (B + 1,), by waiting time."""
    by_wait: dict[int, list[Array]] = {}
    for recording in recordings:
        for wait in shown_waits(recording.ticks):
            if recording.schedule == f"wait {wait}":
                by_wait.setdefault(wait, []).append(recording.errors)
    return {wait: np.mean(errors, axis=0) for wait, errors in sorted(by_wait.items())}


def recorded(config: RunConfig) -> dict[int, Array]:
    """Return the curves of the recorded runs that come with the package and have the learner and stream of a run.

    The runs for the first surrogate are shown if there are any, or else those for the second one. There may be none:
    few streams and learners were recorded.
    """
    for decisions in (False, True):
        try:
            known = shipped_runs(config.env, decisions=decisions)
        except ValueError:
            return {}
        if found := of_recordings(one for one in known if one.run_config.learner == config.learner):
            return found
    return {}
