"""An environment of a few ticks, before and after its start."""

from __future__ import annotations

import pytest

import alma_env
from alma_env import AlmaEnv

from .predictors import TICKS, Noisy


@pytest.fixture
def env() -> AlmaEnv:
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


@pytest.fixture
def started(env):
    model = Noisy()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    return env, model, observation
