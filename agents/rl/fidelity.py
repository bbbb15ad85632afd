"""How faithful a surrogate is: does it rank schedules that it was not fitted to as real runs do?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.waiting.curve import Curve, fit
from agents.waiting.recordings import Recording
from agents.waiting.surrogate import SurrogateVectorEnv


@dataclass(frozen=True)
class Comparison:
    """One schedule, left out of the fit.

    Attributes:
        schedule: in words.
        runs: how many real ones.
        real: their mean cumulative error rate.
        surrogate: that of as many times the episodes.
    """

    schedule: str
    runs: int
    real: float
    surrogate: float


def simulate(curve: Curve, made: Recording, episodes: int, seed: int) -> NDArray[np.float64]:
    """Cumulative error rates, float64 (episodes,), of a run's decisions on a curve."""
    env = SurrogateVectorEnv(episodes, curves=[curve])
    env.reset(seed=seed)
    flags = np.zeros((made.ticks, 3), bool)
    rows = made.column("tick").astype(int) - 1
    flags[rows] = np.stack([np.ones(len(rows)), made.column("replay"), made.column("grow")], -1) > 0
    for flag in flags:
        *_, infos = env.advance(np.broadcast_to(flag, (episodes, 3)))
    cer: NDArray[np.float64] = infos["final_info"]["cer"]
    return cer


def held_out(recordings: Sequence[Recording], episodes: int = 64, seed: int = 0) -> list[Comparison]:
    """Every schedule in turn, on a curve that was fitted to all others.

    Args:
        recordings: runs that differ in nothing but schedule and seed.
        episodes: of the surrogate for each run.
        seed: of the surrogate's draws.

    Raises:
        ValueError: there are fewer than three schedules, so that no ranks can be compared.
    """
    schedules = list(dict.fromkeys(made.schedule for made in recordings))
    if len(schedules) < 3:
        raise ValueError(
            f"{len(schedules)} schedules ({', '.join(schedules)}): ranks need at least 3; record runs with others"
        )
    compared = []
    for schedule in schedules:
        curve = fit([made for made in recordings if made.schedule != schedule])
        runs = [made for made in recordings if made.schedule == schedule]
        simulated = [simulate(curve, made, episodes, seed + n).mean() for n, made in enumerate(runs)]
        real = float(np.mean([made.cer for made in runs]))
        compared.append(Comparison(schedule, len(runs), real, float(np.mean(simulated))))
    return compared


def rank_correlation(compared: Sequence[Comparison]) -> float:
    """Spearman's, between the real and the surrogate's CER of the schedules; NaN if one is constant."""
    from scipy.stats import spearmanr  # takes as long to import as everything else here

    real, surrogate = ([getattr(one, name) for one in compared] for name in ("real", "surrogate"))
    return float(spearmanr(real, surrogate).statistic) if len(set(real)) > 1 < len(set(surrogate)) else math.nan
