"""A known model of trainings, and its episodes as recorded runs: what a fit has to find again."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from agents.policies.choices import REPLAY, RESTART, TRAIN, decision_of, megabatches_with
from agents.rl.models.regression import POOL_SIZE
from agents.rl.models.training_fit import fit_trainings
from agents.rl.models.training_model import TrainingModel
from agents.rl.recorded.recording import Recording
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv

from .synthetic import waits

TICKS = 40


def model_with_quality() -> TrainingModel:
    """Return a model whose trainings have a quality of 0.3 and residuals of 0.1."""
    fitted = fit_trainings(waits(noise=0.05, seeds=range(4)))
    draw = np.random.default_rng(0)
    residuals = np.zeros((8, POOL_SIZE, 3))
    residuals[..., 0] = 0.1 * draw.standard_normal((8, POOL_SIZE))
    warm = np.zeros_like(fitted.warm)
    warm[:, [0, 1, 3, 5]] = -0.4, -0.3, 0.5, -0.2
    cold = np.zeros_like(fitted.cold)
    cold[:2] = 1.0, -0.6
    return dataclasses.replace(
        fitted,
        ticks=TICKS,
        warm=warm,
        cold=cold,
        low=-8.0,
        high=4.0,
        quality=0.3,
        warm_residuals=residuals,
        warm_power=0.0,
        cold_residuals=3 * residuals[:6],
        replays=True,
        restarts=True,
    )


def record(truth: TrainingModel, schedule: str, seed: int) -> Recording:
    """Return an episode of a model as a recording: ``random`` choices, or trainings at every ``wait``-th tick."""
    env = DecisionSurrogateVectorEnv(1, models=[truth])
    env.reset(seed=seed)
    draw = np.random.default_rng(seed)
    rows = []
    for tick in range(1, TICKS + 1):
        if schedule == "random":
            choice = draw.integers(7) if draw.random() < 0.5 else 0
        else:
            choice = int(tick % int(schedule.split()[1]) == 0)
        pending, stages = int(env._pending[0]), int(env._stages[0])
        size = int(megabatches_with(REPLAY[choice], tick, pending, TICKS))
        one = decision_of(choice, TICKS)
        *_, infos = env.step([choice])
        ended = "final_info" in infos
        if TRAIN[choice] and not ended:  # the last tick's error is overwritten by the next episode
            error, loss, wrong = float(env._error[0]), *env._validation[:2, 0]
            window = math.nan if one.window is None else one.window
            restart = bool(RESTART[choice]) and stages > 0
            rows.append(
                [tick, pending, 9 * size, one.replay, 0, loss, wrong, error, error, 1e6 * size, 100, window, restart]
            )
    return Recording("Digits-ALMA-v0", "sm", 4, "{}", schedule, seed, TICKS, 10, 0.9, 100, np.array(rows, np.float64))
