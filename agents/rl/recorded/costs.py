"""What recorded trainings cost: parameters and FLOPs by number of growth steps, and a full pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agents.rl.recorded.recording import Recording

Array = NDArray[np.float64]


def costs_of(recordings: Sequence[Recording]) -> tuple[Array, Array]:
    """Return parameters and FLOPs by number of growth steps, interpolated between the recorded numbers.

    Raises:
        ValueError: no run trains.
    """
    if not any(len(recording.trainings) for recording in recordings):
        raise no_training(recordings)
    grown = np.concatenate([np.cumsum(recording.column("grow")) for recording in recordings]).astype(int)
    sizes = np.concatenate([recording.sizes for recording in recordings])
    counts, flops = (
        np.concatenate([recording.column(name) for recording in recordings]) for name in ("parameters", "flops")
    )
    steps = np.arange(grown.max() + 1)
    known = np.unique(grown)
    parameters = np.interp(steps, known, [counts[grown == step].mean() for step in known])
    lines = [_line(sizes[grown == step], flops[grown == step]) for step in known]
    return parameters, np.stack([np.interp(steps, known, [line[i] for line in lines]) for i in (0, 1)], -1)


def full_pass_of(recordings: Sequence[Recording]) -> float:
    """Return the FLOPs of a full pass: those of a training on D_1, the mean over the runs, for each mega-batch.

    With patience, later trainings differ in length, and `agents.rl.environments.full_pass` measures D_1, too. If no run
    trains at tick 1, the result is computed from the costs of the trainings without growth.
    """
    on_first = [run.column("flops")[0] for run in recordings if (run.column("tick")[:1] == 1).any()]
    one = np.mean(on_first) if on_first else costs_of(recordings)[1][0].sum()
    return float(one) * recordings[0].ticks


def _line(sizes: Array, flops: Array) -> tuple[float, float]:
    """Return FLOPs as (fixed part, per mega-batch); the fixed part is 0 if only one size was recorded."""
    if len(np.unique(sizes)) < 2:
        return 0.0, float(flops.mean() / sizes.mean())
    slope, fixed = np.polyfit(sizes, flops, 1)
    return float(fixed), float(slope)


def no_training(recordings: Sequence[Recording]) -> ValueError:
    """Return the error for runs without a training."""
    return ValueError(f"no training in {len(recordings)} runs; record runs that train")
