"""An environment with three ticks."""

from __future__ import annotations

import pytest

import alma_env


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=3)
