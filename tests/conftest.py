"""Fixtures that several tests share."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import alma_env


@pytest.fixture
def real_data() -> Callable[..., alma_env.DataSet]:
    """Load a real data set by name from the folder ALMA_DATA; the test is skipped when it is not there."""

    def load(name: str, **options: str) -> alma_env.DataSet:
        if not os.environ.get("ALMA_DATA"):
            pytest.skip("ALMA_DATA is not set: it names a folder with the data sets in torchvision's layout")
        try:
            return alma_env.load(name, download=False, **options)
        except alma_env.DataUnavailableError as error:
            pytest.skip(str(error))

    return load
