"""The arguments of make for text: their defaults, and what is refused at make or at reset."""

from __future__ import annotations

import bz2
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")
import alma_env
from alma_env import DataUnavailableError
from alma_env.text.stream import tiny_text

from .predictors import Make


def test_without_arguments_the_text_of_the_package_is_streamed(folder: Path) -> None:
    env = alma_env.make("Text-ALMA-v0", cache=folder / "cache")
    observation, info = env.reset(seed=0)
    assert (env.ticks, info["error"]) == (4, 1_000)
    assert observation["train"]["x"].shape[1] == 64
    assert len(observation["train"]["x"]) > 200
    named = alma_env.make("Text-ALMA-v0", train="tiny")
    assert named.protocol() == env.protocol()


def test_a_given_text_has_the_papers_sizes_by_default() -> None:
    env = alma_env.make("Text-ALMA-v0", train=tiny_text().train, valid=tiny_text().valid)
    assert (env.data.classes, env.data.input_shape, env.ticks) == (50_000, (512,), 4)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"train": "nowhere", "valid": "v.txt"}, DataUnavailableError, "train: 'nowhere' does not exist; pass"),
        ({"train": "t.txt", "valid": "t.txt"}, ValueError, "valid: 't.txt' is among the files of train, too"),
        ({"train": "t.txt", "valid": None}, ValueError, "train='t.txt' without valid: .*train=FOLDER, valid=FILE"),
        ({"train": None}, TypeError, "train=None: must be a folder, a file or a list of files"),
        ({"train": "tiny"}, ValueError, "valid with train='tiny': .* leave valid out, or pass train, too"),
        ({"train": "tiny", "valid": None, "test": "t.txt"}, ValueError, "test with train='tiny': .* leave test out"),
        ({"cache": 5}, TypeError, "cache=5: must be a path"),
        ({"ticks": 0}, ValueError, "ticks=0: a stream has at least 1 mega-batch"),
        ({"ticks": 2.5}, TypeError, "ticks=2.5: must be a whole number"),
        ({"valid_fraction": 0.2}, ValueError, "valid_fraction=0.2.* with text: .*leave both out"),
        ({"partition": "continuum"}, ValueError, "partition='continuum' with text: .* leave both out"),
        ({"root": "data"}, TypeError, "root='data': unknown keyword .* ticks, .*train, .*cache"),
        ({"data": "Text"}, TypeError, "data='Text': .*Arrays-ALMA-v0"),
    ],
)
def test_invalid_arguments_are_refused_by_make(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.txt", "v.txt"):
        (tmp_path / name).write_text("some text")
    with pytest.raises(error, match=message):
        make(**changes)


def test_a_text_that_changes_after_the_environment_was_made_is_refused(make: Make, tmp_path: Path) -> None:
    train = tmp_path / "train.txt"
    train.write_bytes(bz2.decompress(tiny_text().train.read_bytes()))
    env = make(train=train)
    before = env.data.digest
    with train.open("a", encoding="utf-8") as file:
        file.write("\n\nOne more document.\n")
    with pytest.raises(DataUnavailableError, match="a file has changed since the environment was made; make"):
        env.reset(seed=0)
    again = make(train=train)
    again.reset(seed=0)
    assert again.data.digest != before


def test_a_text_that_is_too_short_is_refused_at_reset(make: Make) -> None:
    env = make(sequence_length=200_000)
    with pytest.raises(ValueError, match="sequence_length=200000: the part .* lower sequence_length"):
        env.reset(seed=0)
    assert env.tick == -1


def test_make_names_a_missing_package_and_the_command_that_installs_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'alma-env\[text\]'"):
        make()


def test_the_files_may_come_from_an_iterator(make: Make, folder: Path) -> None:
    env = make(train=folder.glob("train*.txt"))
    assert env.reset(seed=0)[1]["error"] == make().reset(seed=0)[1]["error"]
