"""An environment of a small text."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

import alma_env
from alma_env import AlmaEnv
from alma_env.text.stream import tiny_text

from .predictors import LENGTH, VOCABULARY, Make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a third of the text that comes with the package, and a cache."""
    folder = tmp_path_factory.mktemp("text")
    for name, file in tiny_text()._asdict().items():
        documents = bz2.decompress(file.read_bytes()).decode().split("\n\n")
        (folder / f"{name}.txt").write_text("\n\n".join(documents[::3]), encoding="utf-8")
    return folder


@pytest.fixture
def make(folder: Path) -> Make:
    """A function that makes the environment of a small text, with changed arguments."""
    settings = {
        "train": folder / "train.txt",
        "valid": folder / "valid.txt",
        "sequence_length": LENGTH,
        "vocabulary_size": VOCABULARY,
        "cache": folder / "cache",
        "evaluation_batch_size": 64,
    }
    return lambda **changes: alma_env.make("Text-ALMA-v0", **(settings | changes))


@pytest.fixture
def env(make: Make) -> AlmaEnv:
    return make()
