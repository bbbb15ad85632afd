"""Synthetic recordings whose learning curve is known, and learned schedules with random weights."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from agents.policies.learned.known_states import KnownStates
from agents.policies.learned.next_training import WITHOUT_GROWTH
from agents.policies.learned.priced_features import FEATURES
from agents.policies.learned.schedule import ScheduleNetwork
from agents.rl.models.regression import logit
from agents.rl.recorded.recording import COLUMNS, Recording

TICKS, CLASSES = 20, 10


def law(last, size, seen, stages, replay, grown):
    """A learning curve of the fitted family; the validation error equals the true error."""
    error = -0.3 + 0.5 * last - 0.4 * np.log(size) - 0.1 * np.log(seen) - 0.2 * replay - 0.3 * np.log1p(grown)
    return error, 0.7 + 0.5 * error, 1 / (1 + math.exp(-error))


def recorded(schedule, decide, seed=0, noise=0.0, width=4):
    """A run on the law; ``decide(tick)`` returns (train, replay, grow)."""
    draw = np.random.default_rng([seed, 7])
    rows, last, grown, before = [], float(logit(np.float64(0.9))), 0, 0
    for tick in range(1, TICKS + 1):
        train, replay, grow = decide(tick)
        if not train:
            continue
        grow = grow if rows else 0  # the first training never grows
        size, grown = (tick if replay else tick - before), grown + grow
        error, loss, wrong = law(last, size, tick, len(rows), size > tick - before, grown)
        last, before = error + noise * draw.standard_normal(), tick
        parameters = 100 * (1 + grown)
        flops = 1e6 * (1 + grown) * (2 + size)
        rate = 1 / (1 + math.exp(-last))
        pending = tick - (rows[-1][0] if rows else 0)
        row = [tick, pending, 9 * size, replay, grow, math.exp(loss), wrong, rate / 2, rate, flops, parameters]
        rows.append([*row, math.nan, 0.0])
    return Recording(
        env="Digits-ALMA-v0",
        learner="sm",
        width=width,
        settings="{}",
        schedule=schedule,
        seed=seed,
        ticks=TICKS,
        classes=CLASSES,
        error=0.9,
        parameters=100,
        trainings=np.array(rows, np.float64),
    )


def waits(noise=0.0, width=4, seeds=(0,)):
    made = []
    for seed in seeds:
        for wait in (1, 2, 3, 4, 5, 7, 10, 20):
            made.append(
                recorded(f"wait {wait}", lambda t, w=wait: (t % w == 0 or t == TICKS, 0, 0), seed, noise, width)
            )
        draw = np.random.default_rng(seed)
        for n in range(4):
            at = draw.random(TICKS) < 0.4
            made.append(
                recorded(f"random {n}", lambda t, at=at: (bool(at[t - 1]) or t == TICKS, 0, 0), seed, noise, width)
            )
    return made


def restarting(run):
    """The same run, except that its last training restarts."""
    trainings = run.trainings.copy()
    trainings[-1, COLUMNS.index("restart")] = 1
    return dataclasses.replace(run, schedule=f"{run.schedule}, restart", trainings=trainings)


def with_replay_and_growth():
    draw = np.random.default_rng(3)
    made = []
    for n in range(30):
        flags = (draw.random((TICKS, 3)) < 0.5).astype(int)
        made.append(recorded(f"any {n}", lambda t, flags=flags: tuple(flags[t - 1].tolist()), n))
    return made


def network_of(seed, known=1e9, menu=WITHOUT_GROWTH):
    """A network with random weights, trained (as it says) wherever the features are below ``known``."""
    draw = np.random.default_rng(seed)
    shapes = [(8, len(FEATURES)), (menu.stop + 1, 8)]
    layers = tuple((draw.normal(size=shape).astype(np.float32), np.zeros(shape[0], np.float32)) for shape in shapes)
    low, high = (np.full(len(FEATURES), edge, np.float32) for edge in (-1e9, known))
    return ScheduleNetwork(layers, KnownStates.ranges(low, high), {"pass_price": [0, 100], "memory_price": [0, 0]})
