"""A learning curve, two models of trainings, and a file of recorded runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents.rl.models.learning_curve import Curve, fit
from agents.rl.models.training_fit import fit_trainings
from agents.rl.recorded import recordings

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
    warm[-5:-3] = -0.5  # a growth step lowers the error, the more the larger the training
    return dataclasses.replace(
        model, grows=True, warm=warm, parameters=np.array([100.0, 220.0, 330.0]), flops=np.repeat(model.flops, 3, 0)
    )


@pytest.fixture
def file(tmp_path):
    """Runs of two widths."""
    recordings.save([*waits(noise=0.1), *waits(noise=0.1, width=9)], tmp_path / "waits.npz")
    return tmp_path / "waits.npz"
