"""Fidelity of the second surrogate, on runs whose schedule and whose seed were both held out of the fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.rl.models.training_fit import examples_of, fit_examples
from agents.rl.models.training_model import TrainingModel
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.recordings import distinct
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.fidelity import spearman

NEAR = 1.15  # a schedule is near the best if its CER is at most this many times the CER of the best
EPISODES = 256  # of each run. The band of few episodes is too narrow: 64 episodes hold 57 of 65 ranks, 88 %
_BAND = (0.05, 0.95)
_FOLDS = 5  # of the seeds
_FEWEST = 2  # runs of a schedule whose spread can be compared
_SPLITS = 200  # of the seeds into halves


@dataclass(frozen=True)
class HeldOut:
    """The runs of one schedule, and their simulations by models that saw neither the schedule nor the seed.

    Attributes:
        schedule: as text.
        seeds: of the runs, int64 (runs,).
        real: CER of each run, (runs,).
        simulated: CER of the simulated episodes of each run, (runs, episodes).
    """

    schedule: str
    seeds: NDArray[np.int64]
    real: NDArray[np.float64]
    simulated: NDArray[np.float64]


@dataclass(frozen=True)
class Fidelity:
    """How well simulations agree with held-out runs.

    Attributes:
        schedules: number of schedules that are ranked.
        ranks: Spearman's correlation of their mean CER, real and simulated; NaN with fewer than 3 schedules.
        near: number of schedules that are near the best.
        near_ranks: the correlation among these.
        real_ranks, real_near_ranks: what `ranks` and `near_ranks` would be if another set of as many real runs were in
            the place of the simulations: an estimate from halves of the seeds. A target above it asks for more than
            the runs can show.
        level: mean quotient of simulated and real mean CER.
        spread: quotient of the standard deviations over runs of a schedule, simulated and real (root mean squares);
            NaN if the runs of each schedule agree.
        coverage: share of all runs, exploring runs included, inside the 90 % band of their simulations.
        luck: mean correlation over seeds of the real CER of two schedules: the share of the luck that belongs to the
            seed. The higher it is, the better a comparison seed by seed.
        run_ranks: Spearman's correlation over all runs of the real CER and the mean of its simulations; exploring runs,
            none of which repeats a schedule, have no other correlation.
    """

    schedules: int
    ranks: float
    near: int
    near_ranks: float
    real_ranks: float
    real_near_ranks: float
    level: float
    spread: float
    coverage: float
    luck: float
    run_ranks: float


def simulate(model: TrainingModel, recording: Recording, episodes: int, seed: int) -> NDArray[np.float64]:
    """Return the cumulative error rates, float64 (episodes,), of a run's decisions on a model."""
    env = DecisionSurrogateVectorEnv(episodes, models=[model])
    env.reset(seed=seed)
    tick = 1
    for at, *decision in _decisions(recording):
        env.wait(at - tick)
        tick = at + 1
        *_, infos = env.decide(*(np.full(episodes, value) for value in decision))
    return np.asarray(infos["final_info"]["cer"])


def _decisions(recording: Recording) -> Iterator[tuple[int, bool, float, bool, float]]:
    """Yield tick, whether to train, mega-batches, restart and growth steps of each training, and of the last tick."""
    columns = (recording.column(name) for name in ("tick", "restart", "grow"))
    tick = 0
    for tick, restart, grow, size in zip(*columns, recording.sizes, strict=True):
        yield int(tick), True, size, restart > 0, grow
    if tick < recording.ticks:
        yield recording.ticks, False, 0.0, False, 0.0


def held_out(recordings: Sequence[Recording], episodes: int = EPISODES) -> list[HeldOut]:
    """Simulate each run on a model fitted to runs of the other schedules with other seeds, four fifths of them.

    Every exploring run is a schedule of its own. A run that two schedules have counts for the first of them.

    Raises:
        ValueError: there are fewer than two seeds, or all runs with other seeds have the schedule that is held out.
    """
    recordings = distinct(recordings)
    seeds = sorted({recording.seed for recording in recordings})
    if len(seeds) < 2:
        raise ValueError(f"seeds {seeds}: must be at least two, so that some are held out; record runs of more seeds")
    fold = {one: number % min(_FOLDS, len(seeds)) for number, one in enumerate(seeds)}
    schedules: dict[str, list[Recording]] = {}
    for recording in recordings:
        schedules.setdefault(recording.schedule, []).append(recording)
    examples = [examples_of(recording) for recording in recordings]
    results = []
    models: dict[tuple[str, int], TrainingModel] = {}
    for schedule, runs in schedules.items():
        real, simulated = [], []
        for number, run in enumerate(runs):
            key = ("" if len(runs) < _FEWEST else schedule, fold[run.seed])
            if key not in models:
                known = [
                    one for one in examples if fold[one.recording.seed] != key[1] and one.recording.schedule != key[0]
                ]
                if not known:
                    raise ValueError(
                        f"schedule={schedule!r}, seed={run.seed}: no run of another schedule with another seed is left "
                        "for a fit; record runs of at least two schedules"
                    )
                models[key] = fit_examples(known)
            simulated.append(simulate(models[key], run, episodes, number))
            real.append(run.cer)
        seeds_of_runs = np.array([run.seed for run in runs])
        results.append(HeldOut(schedule, seeds_of_runs, np.array(real), np.array(simulated)))
    return results


def fidelity(compared: Sequence[HeldOut]) -> Fidelity:
    """Return how well simulations agree with the runs of `held_out`."""
    ranked = [one for one in compared if len(one.real) >= _FEWEST]
    real, simulated = (np.array([getattr(one, name).mean() for one in ranked]) for name in ("real", "simulated"))
    near = real <= NEAR * real.min() if len(real) else np.zeros(0, bool)
    variances = np.array([(one.simulated.var(ddof=1), one.real.var(ddof=1)) for one in ranked]).reshape(-1, 2).sum(0)
    inside = [
        (_BAND[0] < (episodes < cer).mean() < _BAND[1])
        for one in compared
        for cer, episodes in zip(one.real, one.simulated, strict=True)
    ]
    return Fidelity(
        schedules=len(ranked),
        ranks=spearman(real, simulated),
        near=int(near.sum()),
        near_ranks=spearman(real[near], simulated[near]),
        real_ranks=_repeated_ranks(ranked),
        real_near_ranks=_repeated_ranks([one for one, is_near in zip(ranked, near, strict=True) if is_near]),
        level=float(np.mean(simulated / real)) if len(real) else math.nan,
        spread=math.sqrt(variances[0] / variances[1]) if variances[1] else math.nan,
        coverage=float(np.mean(inside)),
        luck=_luck(ranked),
        run_ranks=spearman(*_means_of_runs(compared)),
    )


def _means_of_runs(compared: Sequence[HeldOut]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the real CER of each run, and the mean of its simulations."""
    real, simulated = ([getattr(one, name) for one in compared] for name in ("real", "simulated"))
    return np.concatenate(real), np.concatenate([episodes.mean(1) for episodes in simulated])


def _repeated_ranks(ranked: Sequence[HeldOut]) -> float:
    """Return the rank correlation of the mean CER in these runs and in as many others: 2r / (1 + r).

    r is the mean rank correlation of two halves of the seeds, over random halves in which each schedule has runs. The
    formula is that of Spearman and Brown.
    """
    seeds = np.unique(np.concatenate([one.seeds for one in ranked])) if ranked else np.zeros(0, int)
    generator = np.random.default_rng(0)
    found = []
    for _ in range(_SPLITS):
        half = generator.permutation(seeds)[: len(seeds) // 2]
        masks = [np.isin(one.seeds, half) for one in ranked]
        if all(mask.any() and not mask.all() for mask in masks):
            pairs = [(one.real[mask].mean(), one.real[~mask].mean()) for one, mask in zip(ranked, masks, strict=True)]
            found.append(spearman(*np.array(pairs).reshape(-1, 2).T))
    correlation = np.maximum(np.mean(found), 0) if found else math.nan
    return float(2 * correlation / (1 + correlation))


def _luck(ranked: Sequence[HeldOut]) -> float:
    found = []
    for one, other in itertools.combinations(ranked, 2):
        _, here, there = np.intersect1d(one.seeds, other.seeds, return_indices=True)
        pair = one.real[here], other.real[there]
        if len(here) > 2 and np.ptp(pair[0]) and np.ptp(pair[1]):
            found.append(np.corrcoef(*pair)[0, 1])
    return float(np.mean(found)) if found else math.nan
