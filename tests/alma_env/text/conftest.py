"""A stream of a small corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alma_env.text.stream import TextStream, text_stream

from .corpora import LENGTH, TEST, TRAIN, VALID, put


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., TextStream]:
    """A function that makes a stream of 3 mega-batches of 60 documents, with changed arguments."""

    def make(**changes: Any) -> TextStream:
        arguments: dict[str, Any] = {
            "train": tmp_path / "train.txt",
            "valid": tmp_path / "valid.txt",
            "ticks": 3,
            "sequence_length": LENGTH,
            "vocabulary_size": 300,
            "cache": tmp_path / "cache",
        }
        return text_stream(**arguments | changes)

    put(tmp_path / "train.txt", TRAIN)
    put(tmp_path / "valid.txt", VALID)
    put(tmp_path / "test.txt", TEST)
    return make
