"""Invalid arguments of a stream of text are refused with a remedy."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")
from alma_env.errors import DataUnavailableError
from alma_env.text import tokenizer as tokens
from alma_env.text.stream import TextStream

from .corpora import folders


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"train": "nowhere"},
            DataUnavailableError,
            "train: .*nowhere' does not exist; pass",
        ),
        ({"train": "empty"}, DataUnavailableError, "train=.*no file in this folder ends in .txt, .gz, .bz2; put"),
        ({"valid": "notes.md"}, ValueError, "valid: .*notes.md' must end in one of .txt, .gz, .bz2; rename"),
        ({"valid": "all.tar.gz"}, ValueError, "all.tar.gz' must end in one of .*; rename, .* or unpack it"),
        ({"train": []}, ValueError, "must not be empty; pass at least one file"),
        ({"train": 5}, TypeError, "train=5: must be a folder, a file or a list of files"),
        ({"train": [5]}, TypeError, r"train=\[5\]: must be a folder, a file or a list of files"),
        ({"train": ["."]}, ValueError, r"train: '.*' in a list is a folder; pass the folder alone, or list its files"),
        ({"train": ["train.txt", "train.txt"]}, ValueError, "has a file twice; remove"),
        ({"train": "."}, ValueError, "among the files of train, too: held-out text .* list of files without it"),
        ({"test": "valid.txt"}, ValueError, "test: .*valid.txt' is among the files of valid, too"),
        ({"valid": "latin.txt"}, ValueError, r"latin.txt: byte 5 \(0xe9\) is not UTF-8; convert"),
        ({"valid": "cut.txt.gz"}, DataUnavailableError, "cut.txt.gz: cannot be read .*check that it is complete"),
        ({"valid": "cut.txt.bz2"}, DataUnavailableError, "cut.txt.bz2: cannot be read .*check that it is complete"),
        ({"valid": "blank.txt"}, ValueError, "valid: no document in blank.txt, only blank lines; pass text"),
        ({"ticks": 60}, ValueError, "ticks=60: train has 60 documents for 61 parts; .*fewer ticks, or pass a test set"),
        ({"ticks": 10**12}, ValueError, "60 documents for 1000000000001 parts"),
        (
            {"sequence_length": 5_000},
            ValueError,
            r"the part 'train-\d|test' has \d+ tokens, .* 5001; lower .* or ticks",
        ),
        ({"valid": "short.txt"}, ValueError, r"the part 'valid' has \d tokens, .* 17; lower sequence_length, or"),
        ({"ticks": 0}, ValueError, "ticks=0: a stream has at least 1"),
        ({"ticks": 2.0}, TypeError, "ticks=2.0: must be an integer"),
        ({"seed": -1}, ValueError, "seed=-1: the seed of a stream must be a non-negative"),
        ({"seed": None}, TypeError, "seed=None: must be an integer"),
        ({"sequence_length": 0}, ValueError, "sequence_length=0: a sequence has at least 1"),
        ({"vocabulary_size": 256}, ValueError, "vocabulary_size=256: must lie between 257 .* and 2147483648"),
        ({"vocabulary_size": 2**31 + 1}, ValueError, "vocabulary_size=2147483649: must lie between"),
        ({"vocabulary_size": "many"}, TypeError, "vocabulary_size='many': must be an integer"),
        ({"tokenizer": "nowhere.json"}, DataUnavailableError, "tokenizer='.*nowhere.json': does not exist; pass"),
        ({"tokenizer": "train.txt"}, ValueError, "tokenizer='.*train.txt': cannot be read .*pass a tokenizer.json"),
        ({"tokenizer": "no-end.json"}, ValueError, r"no-end.json': has no token <\|endoftext\|>, .*add it"),
        ({"tokenizer": "lower.json"}, ValueError, "lower.json': decodes 'Naïve .*as 'naïve .*; pass a byte-level"),
        ({"tokenizer": "words.json"}, ValueError, "words.json': .*; pass a byte-level tokenizer"),
        ({"tokenizer": 5}, TypeError, "tokenizer=5: must be a path"),
        ({"cache": 5}, TypeError, "cache=5: must be a path"),
    ],
)
def test_invalid_arguments_are_refused_with_a_remedy(
    tmp_path: Path,
    small: Callable[..., TextStream],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("text")
    (tmp_path / "all.tar.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "latin.txt").write_bytes(b"ab\ncd\xe9\n")
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "blank.txt").write_text("\n \n")
    if "cut" in str(changes):
        (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"text" * 99)[:-9])
        (tmp_path / "cut.txt.bz2").write_bytes(bz2.compress(b"text" * 99)[:40])
    no_end = tokens.trained(["text"], 260).to_str().replace(tokens.END_OF_TEXT, "<end>")
    (tmp_path / "no-end.json").write_text(no_end)
    lower = tokens.trained(["text"], 260)
    lower.normalizer = tokens.tokenizers().normalizers.Lowercase()
    lower.save(str(tmp_path / "lower.json"))
    words = tokens.tokenizers().Tokenizer(tokens.tokenizers().models.WordLevel({"text": 0, tokens.END_OF_TEXT: 1}))
    words.save(str(tmp_path / "words.json"))
    if changes == {"train": "."}:
        for name in ("latin.txt", "blank.txt"):
            (tmp_path / name).unlink()
    with pytest.raises(error, match=message):
        small(**changes)
    cache = tmp_path / "cache"
    assert not cache.is_dir() or folders(cache) == []
