"""Streams of text: mega-batches of token sequences for a language model (ALMA paper, section 4.2).

The paper's stream has 4 mega-batches and one more for the evaluation, about 440 million words each, and a separate
validation set: there is no 90/10 split. As in the paper, documents are permuted, cut into parts, encoded by byte-level
BPE and packed into sequences of 512 tokens.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     train, valid = tiny_text()
...     stream = text_stream(train, valid=valid, sequence_length=32, vocabulary_size=500, cache=folder)
...     [stream.megabatch(t)["train"]["x"].shape == (stream.sequences, 32) for t in (1, 2, 3, 4)]
[True, True, True, True]

The text that comes with the package (`tiny_text`) consists of about a hundred passages from English novels of 1813 to
1922, from the collection mlschmitt/classic-books-markdown on GitHub. The novels are in the public domain.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alma_env.build_cache import built
from alma_env.data.datasets import CopiedByReference
from alma_env.data.stream import Part
from alma_env.errors import DataUnavailableError
from alma_env.integers import require_integer
from alma_env.text import packing
from alma_env.text.arguments import cache_folder, check_arguments
from alma_env.text.documents import Paths


@dataclass(frozen=True)
class TextData:
    """Text as tokens, in a folder of the cache; the test part stays inside the environment.

    test_x, test_y: int32 (n, sequence_length), memory-mapped and read-only, values 0..vocabulary-1; y[i] is the token
    after x[i]. Two objects are equal if their digests are equal.
    """

    folder: Path = field(compare=False)
    vocabulary: int  # number of token ids, which may be less than `vocabulary_size`
    sequence_length: int  # tokens
    digest: str  # xxh3_128 (hex) of all token files, the tokenizer and the sequence length
    corpus: str = field(compare=False)  # xxh3_128 (hex) of the documents before permutation: equal for all seeds
    test_x: NDArray[np.int32] = field(repr=False, compare=False)
    test_y: NDArray[np.int32] = field(repr=False, compare=False)

    @property
    def tokenizer_file(self) -> Path:
        """The tokenizer, as a tokenizer.json of Hugging Face's `tokenizers`."""
        return self.folder / packing.TOKENIZER


@dataclass(frozen=True)
class TextStream(CopiedByReference):
    """The mega-batches of a corpus, for ticks t = 1..B; made by `text_stream`."""

    data: TextData
    ticks: int
    seed: int
    sequences: int  # of each mega-batch
    valid_sequences: int

    @property
    def test(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The hidden evaluation set (x, y)."""
        return self.data.test_x, self.data.test_y

    @property
    def validation(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The held-out validation set (x, y)."""
        valid = self.megabatch(1)["valid"]
        return valid["x"], valid["y"]

    def megabatch(self, t: int) -> dict[str, Part]:
        """Return {"train": {"x", "y"}, "valid": {"x", "y"}} of mega-batch t = 1..B.

        All arrays are int32 (n, sequence_length) and memory-mapped copy-on-write: they can be changed, and each call
        maps the files again. The valid part is the held-out set, equal for every t.
        """
        t = require_integer(t, "t")
        if not 1 <= t <= self.ticks:
            raise IndexError(f"t={t}: the mega-batches of this stream are 1..{self.ticks}")
        parts = {"train": (packing.train_file(t), self.sequences), "valid": (packing.VALID, self.valid_sequences)}
        megabatch = {}
        for name, (file, n) in parts.items():
            x, y = packing.opened(self.data.folder, file, n, self.data.sequence_length, "c")
            megabatch[name] = {"x": x, "y": y}
        return megabatch

    def __reduce__(self) -> tuple[Callable[..., TextStream], tuple[Any, ...]]:
        return _reopen, (str(self.data.folder), self.data.digest)


class TinyText(NamedTuple):
    """Two files of documents."""

    train: Path
    valid: Path


def tiny_text() -> TinyText:
    """Return the text that comes with the package, enough for 4 mega-batches of a few hundred short sequences."""
    here = Path(__file__).parent
    return TinyText(here / "tiny_text_train.txt.bz2", here / "tiny_text_valid.txt.bz2")


def text_stream(
    train: Paths,
    *,
    valid: Paths,
    test: Paths | None = None,
    ticks: int = 4,
    seed: int = 0,
    sequence_length: int = 512,
    vocabulary_size: int = 50_000,
    tokenizer: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> TextStream:
    """Make a stream of `ticks` mega-batches of tokens from plain text.

    The documents of `train` are permuted by seed and cut into consecutive parts whose numbers of documents differ by at
    most 1. In each part END_OF_TEXT follows every document, and the tokens are cut into sequences. All mega-batches get
    the number of sequences of the smallest one; the remaining tokens are dropped.

    Building needs disk space for the text and its tokens, and memory for the different words of the first mega-batch,
    24 bytes per document, and the largest document. Memory does not depend on the size of the corpus otherwise.

    Args:
        train: a folder, a file or a list of files: .txt, .gz or .bz2, in UTF-8, with blank lines between documents.
            Files are read in the order of their names.
        valid: the held-out validation set, in the same form.
        test: the evaluation set, in the same form. None holds out one more part of the stream, of the size of a
            mega-batch, which is never released.
        ticks: number of mega-batches B.
        seed: seed of the order of the documents.
        sequence_length: tokens T of a sequence.
        vocabulary_size: the most tokens of the tokenizer, which is trained on the documents of the first mega-batch;
            ignored with a given `tokenizer`.
        tokenizer: a tokenizer.json of Hugging Face's `tokenizers` that has the token <|endoftext|>.
        cache: the folder for the tokens; default: a folder in the user's cache. The tokens of equal content and
            arguments are built once; later calls compute only the digest of the content.

    Raises:
        ValueError: an argument breaks its rule, the text is too short, or the text is not UTF-8.
        TypeError: an argument has the wrong type.
        DataUnavailableError: a file is missing or cannot be read, or the cache is damaged.
        MissingPackageError: `tokenizers` is not installed (an ImportError).
    """
    arguments = check_arguments(train, valid, test, ticks, seed, sequence_length, vocabulary_size, tokenizer)
    root = cache_folder(cache)
    before = arguments.stamps()
    key = arguments.key()

    def make(folder: Path) -> None:
        packing.pack(arguments, folder)
        if arguments.stamps() != before:  # the key may not be the digest of the text that was read
            raise DataUnavailableError("train, valid, test or tokenizer: a file changed while it was read; call again")

    folder = built(root, key, make)
    _warn_of_dropped_text(packing.manifest_of(folder))
    return _open(folder)


def _warn_of_dropped_text(manifest: dict[str, Any]) -> None:
    settings, names = manifest["settings"], [packing.train_file(t) for t in range(1, manifest["settings"]["ticks"] + 1)]
    total = sum(manifest["tokens"][name] for name in names)
    kept = sum(manifest["sequences"][name] for name in names) * settings["sequence_length"]
    if kept < total / 2:
        warnings.warn(
            f"{total - kept:,} of {total:,} tokens of train are dropped, because all mega-batches get the size of the "
            "smallest one: its documents are short, or others are long; separate documents by blank lines, or lower "
            "ticks or sequence_length",
            UserWarning,
            stacklevel=3,
        )


def _open(folder: Path) -> TextStream:
    """Open the stream in a cache folder."""
    manifest = packing.manifest_of(folder)
    settings, sizes = manifest["settings"], manifest["sequences"]
    length = settings["sequence_length"]
    test = packing.opened(folder, packing.TEST, sizes[packing.TEST], length, "r")
    data = TextData(folder, manifest["vocabulary"], length, manifest["digest"], manifest["corpus"], *test)
    return TextStream(data, settings["ticks"], settings["seed"], sizes[packing.train_file(1)], sizes[packing.VALID])


def _reopen(folder: str, digest: str) -> TextStream:
    stream = _open(Path(folder))
    if stream.data.digest != digest:
        raise ValueError(
            f"{folder}: has the digest {stream.data.digest}, but the pickled stream had {digest}; "
            "make the stream again with text_stream"
        )
    return stream
