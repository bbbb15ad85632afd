"""An environment of arrays, before and after its start."""

from __future__ import annotations

import pytest

import alma_env

from .linear import arrays, network


@pytest.fixture
def env():
    return alma_env.make("Arrays-ALMA-v0", train=arrays(0), test=arrays(1), ticks=5)


@pytest.fixture
def started(env):
    model = network()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    return env, model, observation
