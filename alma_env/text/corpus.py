"""What an environment is given for text: the files, and how they are to become a stream for each seed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xxhash
from gymnasium import spaces

from alma_env import tokens
from alma_env.corpus import Paths, content_digest, files_of
from alma_env.data import TEXT
from alma_env.errors import DataUnavailableError
from alma_env.tasks import LanguageModelling
from alma_env.text import TextStream, cache_folder, checked, text_stream, tokenizer_file


@dataclass(frozen=True)
class TextCorpus:
    """Plain text for language modelling; see `alma_env.text.text_stream` for the arguments.

    The vocabulary V is `vocabulary_size`, or that of the given tokeniser, whatever the seed: a tokeniser that is
    trained on too little text to fill it leaves the last ids without a use.
    """

    train: Paths
    valid: Paths
    test: Paths | None = None
    sequence_length: int = 512
    vocabulary_size: int = 50_000
    tokenizer: str | Path | None = None
    cache: str | Path | None = None
    name: str = field(default=TEXT, init=False)
    held_out_valid: ClassVar[bool] = True  # the validation set is the same at every tick

    def check(self, ticks: int) -> None:
        """See that a stream of so many mega-batches can be asked for, without reading the text.

        Raises what `text_stream` raises for arguments and files; whether the text suffices is found out at a reset.
        """
        checked(**self._arguments(ticks, seed=0))
        cache_folder(self.cache)
        self._require_unchanged()

    @cached_property
    def vocabulary(self) -> int:
        """V."""
        if self.tokenizer is None:
            return int(self.vocabulary_size)
        return tokens.vocabulary_of(tokens.loaded(tokenizer_file(self.tokenizer)))

    @property
    def task(self) -> LanguageModelling:
        """What is asked of a predictor."""
        return LanguageModelling(self.vocabulary)

    @property
    def classes(self) -> int:
        """Logits per token."""
        return self.vocabulary

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(T,)."""
        return (int(self.sequence_length),)

    @cached_property
    def digest(self) -> str:
        """xxh3_128 (hex) of the bytes of all files."""
        self._require_unchanged()
        digest = xxhash.xxh3_128()
        for role in ("train", "valid", "test"):
            paths = getattr(self, role)
            if paths is not None:
                files = files_of(paths, role)
                digest.update(f" {role} {len(files)} ".encode())
                content_digest(files, digest)
        return digest.hexdigest()

    def protocol(self) -> dict[str, Any]:
        """All of it that scores depend on; plain JSON values."""
        file = None if self.tokenizer is None else tokenizer_file(self.tokenizer)
        given = None if file is None else xxhash.xxh3_128_hexdigest(file.read_bytes())
        return {
            "data": self.name,
            "digest": self.digest,
            "vocabulary": self.vocabulary,
            "sequence_length": int(self.sequence_length),
            "tokenizer": given,
            "tokenizers": tokens.tokenizers().__version__,  # another one may train another tokeniser
        }

    def stream(self, ticks: int, seed: int) -> TextStream:
        """Made at the first call for these arguments and this content; later ones find it in the cache."""
        self._require_unchanged()
        return text_stream(**self._arguments(ticks, seed), cache=self.cache)

    @cached_property
    def _stamps(self) -> list[tuple[int, int]]:
        return self._stamps_now()

    def _stamps_now(self) -> list[tuple[int, int]]:
        return checked(**self._arguments(ticks=1, seed=0)).stamps()

    def _require_unchanged(self) -> None:
        """The digest is computed once: a stream of other text must not be scored under it."""
        if self._stamps_now() != self._stamps:
            raise DataUnavailableError(
                "train, valid, test or tokenizer: a file has changed since the environment was made; make it anew"
            )

    def _arguments(self, ticks: int, seed: int) -> dict[str, Any]:
        return {
            "train": self.train,
            "valid": self.valid,
            "test": self.test,
            "ticks": ticks,
            "seed": seed,
            "sequence_length": self.sequence_length,
            "vocabulary_size": self.vocabulary_size,
            "tokenizer": self.tokenizer,
        }

    def part_space(self) -> spaces.Dict:
        """Of a part of a mega-batch: any number of sequences, which depends on the seed, as int32 arrays (n, T)."""
        sequence = spaces.Box(0, self.vocabulary - 1, self.input_shape, np.int32)
        return spaces.Dict({name: spaces.Sequence(sequence, stack=True) for name in ("x", "y")})

    def __hash__(self) -> int:
        return hash(json.dumps([str(self.train), str(self.valid), str(self.test), self.sequence_length]))
