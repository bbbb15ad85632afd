"""The arguments of a text stream: checked without reading the text, and the key of its folder in the cache."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import platformdirs
import xxhash

from alma_env.errors import ArgumentTypeError, DataUnavailableError
from alma_env.files import file_digest
from alma_env.integers import require_integer, require_seed
from alma_env.text import tokenizer as tokens
from alma_env.text.documents import Paths, content_digest, files_of

FORMAT = 1  # of the files in the cache


@dataclass(frozen=True)
class TextArguments:
    """The checked arguments of `alma_env.text.stream.text_stream`."""

    files: dict[str, tuple[Path, ...]]  # of "train", "valid" and, if it is given, "test"
    ticks: int
    seed: int
    length: int  # sequence_length
    vocabulary_size: int
    tokenizer: Path | None

    def stamps(self) -> list[tuple[int, int]]:
        """Return size and modification time (ns) of each file."""
        files = [*chain.from_iterable(self.files.values()), *([self.tokenizer] if self.tokenizer else [])]
        return [(stat.st_size, stat.st_mtime_ns) for stat in map(Path.stat, files)]

    def settings(self) -> dict[str, Any]:
        """Return everything that the tokens depend on, except the text; plain JSON values."""
        return {
            "format": FORMAT,
            "tokenizers": tokens.tokenizers().__version__,
            "ticks": self.ticks,
            "seed": self.seed,
            "sequence_length": self.length,
            "vocabulary_size": self.vocabulary_size if self.tokenizer is None else None,
            "tokenizer": None if self.tokenizer is None else file_digest(self.tokenizer),
        }

    def key(self) -> str:
        """Return xxh3_128 (hex) of the settings and of the bytes of all files."""
        return self.digest(json.dumps(self.settings()))

    def digest(self, prefix: str = "") -> str:
        """Return xxh3_128 (hex) of a prefix and of the bytes of all files."""
        digest = xxhash.xxh3_128(prefix.encode())
        for role, files in self.files.items():
            digest.update(f" {role} {len(files)} ".encode())
            content_digest(files, digest)
        return str(digest.hexdigest())


def check_arguments(
    train: Paths,
    valid: Paths,
    test: Paths | None,
    ticks: int,
    seed: int,
    sequence_length: int,
    vocabulary_size: int,
    tokenizer: str | os.PathLike[str] | None,
) -> TextArguments:
    """Check the arguments of `text_stream` without reading the text; raises the same errors."""
    tokens.tokenizers()
    ticks, seed = require_integer(ticks, "ticks"), require_seed(seed)
    length = require_integer(sequence_length, "sequence_length")
    vocabulary_size = require_integer(vocabulary_size, "vocabulary_size")
    if ticks < 1:
        raise ValueError(f"ticks={ticks}: a stream has at least 1 mega-batch; use ticks=20, or leave ticks out")
    if length < 1:
        raise ValueError(f"sequence_length={length}: a sequence has at least 1 token")
    if not tokens.SMALLEST_VOCABULARY <= vocabulary_size <= tokens.LARGEST_VOCABULARY:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}: must lie between {tokens.SMALLEST_VOCABULARY} "
            f"(256 bytes and the end of a text) and {tokens.LARGEST_VOCABULARY} (ids are int32)"
        )
    files = {"train": files_of(train, "train"), "valid": files_of(valid, "valid")}
    if test is not None:
        files["test"] = files_of(test, "test")
    _require_disjoint(files)
    given = None if tokenizer is None else tokenizer_file(tokenizer)
    return TextArguments(files, ticks, seed, length, vocabulary_size, given)


def _require_disjoint(files: dict[str, tuple[Path, ...]]) -> None:
    roles: dict[Path, str] = {}
    for role, paths in files.items():
        for path in paths:
            other = roles.setdefault(path.resolve(), role)
            if other != role:
                raise ValueError(
                    f"{role}: {str(path)!r} is among the files of {other}, too: held-out text must not be trained on; "
                    f"move the file, or pass {other} as a list of files without it"
                )


def cache_folder(cache: str | os.PathLike[str] | None) -> Path:
    """Return the given folder for tokens, or by default one in the user's cache."""
    if cache is None:
        return platformdirs.user_cache_path("alma-env", appauthor=False) / "text"
    return _path(cache, "cache").expanduser().absolute()


def tokenizer_file(tokenizer: str | os.PathLike[str]) -> Path:
    """Return the file of a given tokenizer; raise DataUnavailableError if it does not exist."""
    file = _path(tokenizer, "tokenizer").expanduser()
    if not file.is_file():
        raise DataUnavailableError(
            f"tokenizer={str(file)!r}: does not exist; pass an existing tokenizer.json, or None to train a tokenizer"
        )
    return file


def _path(value: str | os.PathLike[str], name: str) -> Path:
    try:
        return Path(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}={value!r}: must be a path; write it as text") from None
