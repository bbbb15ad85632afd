"""Fidelity of a surrogate: the ranks of held-out schedules in the surrogate and in real runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.learning_curve import Curve, fit
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.recordings import distinct
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

EPISODES = 64  # of each run


@dataclass(frozen=True)
class HeldOutSchedule:
    """A schedule that was held out of the fit: the mean CER of its real runs, and of the surrogate's episodes."""

    schedule: str
    runs: int
    real: float
    surrogate: float


def simulate(curve: Curve, recording: Recording, episodes: int, seed: int) -> NDArray[np.float64]:
    """Return the cumulative error rates, float64 (episodes,), of a run's decisions on a curve.

    Raises:
        ValueError: no action of ``Wait-v0`` expresses a decision of the run.
    """
    recording.require_expressible()
    env = SurrogateVectorEnv(episodes, curves=[curve])
    env.reset(seed=seed)
    for decision in recording.decisions > 0:
        *_, infos = env.advance(np.broadcast_to(decision, (episodes, 3)))
    cer: NDArray[np.float64] = infos["final_info"]["cer"]
    return cer


def held_out(recordings: Sequence[Recording], episodes: int = EPISODES) -> list[HeldOutSchedule]:
    """Hold out each schedule in turn, and simulate it on the curve fitted to the other schedules.

    The runs differ only in schedule and seed. A run that two schedules have counts for the first of them. The surrogate
    simulates ``episodes`` per run.

    Raises:
        ValueError: there are fewer than three schedules, too few to compare ranks; or as `simulate`.
    """
    recordings = distinct(recordings)
    schedules = list(dict.fromkeys(recording.schedule for recording in recordings))
    if len(schedules) < 3:
        raise ValueError(
            f"{len(schedules)} schedules ({', '.join(schedules)}): ranks need at least 3; record runs with others"
        )
    compared = []
    for schedule in schedules:
        curve = fit([recording for recording in recordings if recording.schedule != schedule])
        runs = [recording for recording in recordings if recording.schedule == schedule]
        simulated = [simulate(curve, run, episodes, n).mean() for n, run in enumerate(runs)]
        real = float(np.mean([run.cer for run in runs]))
        compared.append(HeldOutSchedule(schedule, len(runs), real, float(np.mean(simulated))))
    return compared


def rank_correlation(compared: Sequence[HeldOutSchedule]) -> float:
    """Return Spearman's correlation of the schedules' CER, real and surrogate, see `spearman`."""
    real, surrogate = (np.array([getattr(one, name) for one in compared]) for name in ("real", "surrogate"))
    return spearman(real, surrogate)


def spearman(real: NDArray[np.float64], simulated: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation; NaN with fewer than 3 values, or if one side is constant."""
    from scipy.stats import spearmanr  # slow to import

    if len(real) < 3 or len(set(real)) == 1 or len(set(simulated)) == 1:
        return math.nan
    return float(spearmanr(real, simulated).statistic)
