"""An environment of arrays."""

from __future__ import annotations

import pytest

import alma_env

from .linear import arrays


@pytest.fixture
def env():
    return alma_env.make("Arrays-ALMA-v0", train=arrays(0), test=arrays(1), ticks=5)
