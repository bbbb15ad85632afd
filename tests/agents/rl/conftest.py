"""Finished runs, a file of recorded runs, a learning curve, models of trainings, and the episodes of one of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import agents
import alma_env
from agents.policies.waiting import fixed_wait
from agents.rl.models.learning_curve import Curve, fit
from agents.rl.models.training_fit import fit_trainings
from agents.rl.models.training_model import TrainingModel
from agents.rl.recorded import recordings
from agents.rl.recorded.recording import Recording

from .known_model import model_with_quality, record
from .synthetic import waits


@pytest.fixture(scope="module")
def curve() -> Curve:
    return fit(waits(noise=0.1, seeds=(0, 1)))


@pytest.fixture(scope="module")
def model():
    fitted = fit_trainings(waits(noise=0.05, seeds=(0, 1)))
    return dataclasses.replace(fitted, replays=True, restarts=True, quality=0.2)


@pytest.fixture(scope="module")
def growing(model):
    """A learner that grows up to twice."""
    warm = model.warm.copy()
    warm[1, -8:-6] = -0.5  # a growth step lowers the error, the more the larger the training
    return dataclasses.replace(
        model, grows=True, warm=warm, parameters=np.array([100.0, 220.0, 330.0]), flops=np.repeat(model.flops, 3, 0)
    )


@pytest.fixture(scope="session")
def truth() -> TrainingModel:
    """The known model."""
    return model_with_quality()


@pytest.fixture(scope="session")
def episodes(truth) -> list[Recording]:
    """Waits, and random choices: each of these runs is a schedule of its own, as recorded exploring runs are."""
    schedules = ["random", "random", "wait 1", "wait 2", "wait 4", "wait 8", "wait 13", "wait 20"]
    runs = []
    for number, schedule in enumerate(schedules):
        for seed in range(24):
            name = f"random {number} {seed}" if schedule == "random" else schedule
            runs.append(dataclasses.replace(record(truth, schedule, 100 * number + seed), seed=seed, schedule=name))
    return runs


@pytest.fixture(scope="session")
def few(episodes) -> list[Recording]:
    """The runs of five seeds, for the tests of commands: their numbers are tested on all."""
    return [one for one in episodes if one.seed < 5]


@pytest.fixture
def file(tmp_path):
    """Runs of two widths."""
    recordings.save([*waits(noise=0.1), *waits(noise=0.1, width=9)], tmp_path / "waits.npz")
    return tmp_path / "waits.npz"


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Two finished runs of the single model and one of a growing ensemble with replay."""
    folder = tmp_path_factory.mktemp("runs")
    for name, id, policy in (
        ("a", "sm", fixed_wait(2)),
        ("b", "sm", fixed_wait(5)),
        ("c", "gens", fixed_wait(3, replay=True, growth="every")),
    ):
        env = alma_env.make("Digits-ALMA-v0", ticks=6)
        agent = agents.make(id, env, width=4, epochs=1, policy=policy, seed=1)
        agents.run(env, agent, 1, folder / name, record=name != "b")
    return folder
