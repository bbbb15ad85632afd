"""A learning curve, a model of trainings, and a file of recorded runs."""

from __future__ import annotations

import dataclasses

import pytest

from agents.rl.models import recordings
from agents.rl.models.learning_curve import Curve, fit
from agents.rl.models.training_fit import fit_trainings

from .synthetic import waits


@pytest.fixture(scope="module")
def curve() -> Curve:
    return fit(waits(noise=0.1, seeds=(0, 1)))


@pytest.fixture(scope="module")
def model():
    fitted = fit_trainings(waits(noise=0.05, seeds=(0, 1)))
    return dataclasses.replace(fitted, replays=True, restarts=True, quality=0.2)


@pytest.fixture
def file(tmp_path):
    """Runs of two widths."""
    recordings.save([*waits(noise=0.1), *waits(noise=0.1, width=9)], tmp_path / "waits.npz")
    return tmp_path / "waits.npz"
