"""The corpus: the text files of an environment, and the settings of their streams, one stream per seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from alma_env.data.datasets import TEXT
from alma_env.errors import DataUnavailableError
from alma_env.files import file_digest
from alma_env.scoring.tasks import LanguageModelling
from alma_env.text import tokenizer as tokens
from alma_env.text.arguments import cache_folder, check_arguments, tokenizer_file
from alma_env.text.documents import Paths
from alma_env.text.stream import TextStream, text_stream


@dataclass(frozen=True)
class TextCorpus:
    """Plain text for language modelling; see `alma_env.text.stream.text_stream` for the arguments.

    The vocabulary size V is `vocabulary_size`, or that of the given tokenizer, for every seed. If the text is too short
    to train a tokenizer of this size, the last ids are not used.
    """

    train: Paths
    valid: Paths
    test: Paths | None = None
    sequence_length: int = 512
    vocabulary_size: int = 50_000
    tokenizer: str | Path | None = None
    cache: str | Path | None = None
    name: str = field(default=TEXT, init=False)
    held_out_valid: ClassVar[bool] = True  # one validation set for all ticks

    def __post_init__(self) -> None:
        for role in ("train", "valid", "test"):  # an iterator, as of Path.glob, can be read only once
            if isinstance(paths := getattr(self, role), Iterator):
                object.__setattr__(self, role, tuple(paths))

    def check(self, ticks: int) -> None:
        """Check the arguments and files of a stream of `ticks` mega-batches without reading the text.

        Raises the errors of `text_stream` for arguments and files. Whether there is enough text is checked at a reset.
        """
        check_arguments(**self._arguments(ticks, seed=0))
        cache_folder(self.cache)
        self._require_unchanged()

    @cached_property
    def vocabulary(self) -> int:
        """Vocabulary size V."""
        if self.tokenizer is None:
            return int(self.vocabulary_size)
        return tokens.vocabulary_of(tokens.loaded(tokenizer_file(self.tokenizer)))

    @property
    def task(self) -> LanguageModelling:
        """The task of the predictors."""
        return LanguageModelling(self.vocabulary)

    @property
    def classes(self) -> int:
        """Number of logits per token."""
        return self.vocabulary

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape (T,) of one sequence."""
        return (int(self.sequence_length),)

    @cached_property
    def digest(self) -> str:
        """xxh3_128 (hex) of the bytes of all files."""
        self._require_unchanged()
        return check_arguments(**self._arguments(ticks=1, seed=0)).digest()

    def protocol(self) -> dict[str, Any]:
        """Return everything that scores depend on, as plain JSON values."""
        return {
            "data": self.name,
            "digest": self.digest,
            "vocabulary": self.vocabulary,
            "sequence_length": int(self.sequence_length),
            "tokenizer": None if self.tokenizer is None else file_digest(tokenizer_file(self.tokenizer)),
            "tokenizers": tokens.tokenizers().__version__,  # another version may train another tokenizer
        }

    def stream(self, ticks: int, seed: int) -> TextStream:
        """Return the stream of a seed; the first call builds its files, later calls find them in the cache."""
        self._require_unchanged()
        return text_stream(**self._arguments(ticks, seed), cache=self.cache)

    @cached_property
    def _stamps(self) -> list[tuple[int, int]]:
        return self._stamps_now()

    def _stamps_now(self) -> list[tuple[int, int]]:
        return check_arguments(**self._arguments(ticks=1, seed=0)).stamps()

    def _require_unchanged(self) -> None:
        """Require unchanged files: the digest is computed once and must not be reported for other text."""
        if self._stamps_now() != self._stamps:
            raise DataUnavailableError(
                "train, valid, test or tokenizer: a file has changed since the environment was made; make the "
                "environment again"
            )

    def _arguments(self, ticks: int, seed: int) -> dict[str, Any]:
        names = ("train", "valid", "test", "sequence_length", "vocabulary_size", "tokenizer")
        return {name: getattr(self, name) for name in names} | {"ticks": ticks, "seed": seed}

    def part_space(self) -> spaces.Dict:
        """Return the space of a part of a mega-batch: int32 arrays (n, T), where n depends on the seed."""
        sequence = spaces.Box(0, self.vocabulary - 1, self.input_shape, np.int32)
        return spaces.Dict({name: spaces.Sequence(sequence, stack=True) for name in ("x", "y")})

    def __hash__(self) -> int:
        return hash(json.dumps([str(self.train), str(self.valid), str(self.test), self.sequence_length]))
