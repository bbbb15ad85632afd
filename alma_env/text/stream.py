"""Streams of text: mega-batches of token sequences for a language model (ALMA paper, section 4.2).

The paper's stream has 4 mega-batches and one more for the evaluation, about 440 million words each, and a separate
validation set: there is no 90/10 split. Here as there, documents are permuted, cut into parts, turned into tokens
by byte-level BPE and packed into sequences of 512.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     train, valid = tiny_text()
...     stream = text_stream(train, valid=valid, sequence_length=32, vocabulary_size=500, cache=folder)
...     [stream.megabatch(t)["train"]["x"].shape == (stream.sequences, 32) for t in (1, 2, 3, 4)]
[True, True, True, True]

The text that comes with the package (`tiny_text`) is about a hundred passages, whole paragraphs, from English novels of
1813 to 1922 as the collection mlschmitt/classic-books-markdown on GitHub has them. They are in the public domain.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import platformdirs
from numpy.typing import NDArray

from alma_env import packing, tokens
from alma_env._cache import built
from alma_env.corpus import Paths, files_of
from alma_env.data import TEXT
from alma_env.errors import DataUnavailableError
from alma_env.stream import Part, _integer


@dataclass(frozen=True, eq=False)
class TextData:
    """Text as tokens, in a folder of the cache; the test part stays inside the environment.

    test_x, test_y: int32 (n, sequence_length), memory-mapped and read-only, values 0..vocabulary-1; y[i] is the
    token after x[i]. Two are equal when their digests are. A copy is the same object, and a pickle holds the
    folder and the digest, not the arrays.
    """

    folder: Path
    name: str
    vocabulary: int  # number of token ids, which may be less than was asked for
    sequence_length: int  # tokens
    digest: str  # xxh3_128 (hex) of all token files, the tokeniser and the sequence length
    corpus: str  # xxh3_128 (hex) of the documents before any order or tokeniser: the same for all seeds
    test_x: NDArray[np.int32] = field(repr=False)
    test_y: NDArray[np.int32] = field(repr=False)
    held_out_valid: ClassVar[bool] = True  # validation is a set of its own, the same at all ticks

    @property
    def tokenizer_file(self) -> Path:
        """The tokeniser, as a tokenizer.json of Hugging Face's `tokenizers`."""
        return self.folder / packing.TOKENIZER

    def verify(self) -> None:
        """Read all files and compare them with their digests (opening compares sizes only).

        Raises DataUnavailableError when one differs.
        """
        packing.verify(self.folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextData) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __copy__(self) -> TextData:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> TextData:
        return self

    def __reduce__(self) -> tuple[Callable[..., TextData], tuple[Any, ...]]:
        return _reopen_data, (str(self.folder), self.digest)


@dataclass(frozen=True)
class TextStream:
    """The mega-batches of a corpus, for ticks t = 1..B; see `text_stream`, which makes it."""

    data: TextData
    ticks: int
    seed: int
    sequences: int  # of each mega-batch
    valid_sequences: int

    def __len__(self) -> int:
        return self.ticks

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
        """{"train": {"x", "y"}, "valid": {"x", "y"}} of mega-batch t = 1..B.

        All are int32 (n, sequence_length): memory-mapped, opened anew, copied where they are written to, so that
        they are free to change. The valid part is the held-out set, the same at every t.
        """
        t = _integer(t, "t")
        if not 1 <= t <= self.ticks:
            raise IndexError(f"t={t}: the mega-batches of this stream are 1..{self.ticks}")
        parts = {"train": (packing.train_file(t), self.sequences), "valid": (packing.VALID, self.valid_sequences)}
        return {
            name: dict(
                zip(("x", "y"), packing.opened(self.data.folder, file, n, self.data.sequence_length, "c"), strict=True)
            )
            for name, (file, n) in parts.items()
        }

    def __copy__(self) -> TextStream:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> TextStream:
        return self

    def __reduce__(self) -> tuple[Callable[..., TextStream], tuple[Any, ...]]:
        return _reopen, (str(self.data.folder), self.data.digest)


class TinyText(NamedTuple):
    """Two files of documents."""

    train: Path
    valid: Path


def tiny_text() -> TinyText:
    """The text that comes with the package, enough for 4 mega-batches of a few hundred short sequences."""
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
    """A stream of `ticks` mega-batches of tokens from a folder of plain text.

    The documents of `train` are permuted by seed and cut into consecutive parts whose numbers of documents differ
    by 1 at most. In each part END_OF_TEXT follows every document, and the tokens are cut into sequences; all
    mega-batches have as many sequences as the smallest, and what is left over is dropped.

    Args:
        train: a folder, a file or a list of files: .txt, .gz or .bz2, in UTF-8, with blank lines between
            documents. They are read in the order of their names.
        valid: the held-out validation set, likewise.
        test: likewise; None holds out one more part of the stream, of the size of a mega-batch, which is not released.
        ticks: mega-batches B.
        seed: of the order of the documents.
        sequence_length: tokens T of a sequence.
        vocabulary_size: the most tokens of the tokeniser, which is trained on the documents of the first mega-batch;
            of no account when `tokenizer` is given.
        tokenizer: a tokenizer.json of Hugging Face's `tokenizers` that has the token <|endoftext|>.
        cache: the folder for the tokens, by default one in the user's cache. They are made once for the same content
            and arguments; after that only the digest of the content is computed.

    Making them takes disk space for the text and its tokens, and memory for the different words of the first
    mega-batch, 24 bytes per document, and the largest document; the size of the corpus does not matter otherwise.

    Raises ValueError or TypeError for arguments that make no stream or text that is not UTF-8, DataUnavailableError
    for files that are missing or cannot be read and for a damaged cache, MissingPackageError (an ImportError) without
    `tokenizers`.
    """
    recipe = checked(
        train,
        valid=valid,
        test=test,
        ticks=ticks,
        seed=seed,
        sequence_length=sequence_length,
        vocabulary_size=vocabulary_size,
        tokenizer=tokenizer,
    )
    root = cache_folder(cache)
    before = recipe.stamps()
    key = recipe.key()

    def make(folder: Path) -> None:
        packing.make(recipe, folder)
        if recipe.stamps() != before:  # the digest in the key may not be that of what was read
            raise DataUnavailableError("train, valid, test or tokenizer: a file changed while it was read; try again")

    folder = built(root, key, make)
    _warn_of_what_is_dropped(packing.manifest_of(folder))
    return _stream(folder)


def _warn_of_what_is_dropped(manifest: dict[str, Any]) -> None:
    settings, names = manifest["settings"], [packing.train_file(t) for t in range(1, manifest["settings"]["ticks"] + 1)]
    there = sum(manifest["tokens"][name] for name in names)
    kept = sum(manifest["sequences"][name] for name in names) * settings["sequence_length"]
    if kept < there / 2:
        warnings.warn(
            f"{there - kept:,} of {there:,} tokens of train are left out, since all mega-batches get the size of the "
            "smallest: its documents are short, or others long; separate documents by blank lines, or lower ticks or "
            "sequence_length",
            UserWarning,
            stacklevel=3,
        )


def checked(
    train: Paths,
    *,
    valid: Paths,
    test: Paths | None,
    ticks: int,
    seed: int,
    sequence_length: int,
    vocabulary_size: int,
    tokenizer: str | os.PathLike[str] | None,
) -> packing.Recipe:
    """The arguments of `text_stream`, as far as they can be checked without reading the text; raises as it does."""
    tokens.tokenizers()
    ticks, seed = _integer(ticks, "ticks"), _integer(seed, "seed")
    length, vocabulary_size = _integer(sequence_length, "sequence_length"), _integer(vocabulary_size, "vocabulary_size")
    if ticks < 1:
        raise ValueError(f"ticks={ticks}: a stream has at least 1 mega-batch")
    if seed < 0:
        raise ValueError(f"seed={seed}: the seed of a stream must be a non-negative integer")
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
    _check_apart(files)
    given = None if tokenizer is None else tokenizer_file(tokenizer)
    return packing.Recipe(files, ticks, seed, length, vocabulary_size, given)


def cache_folder(cache: str | os.PathLike[str] | None) -> Path:
    """The folder for tokens: the given one, or the user's."""
    if cache is None:
        return platformdirs.user_cache_path("alma-env", appauthor=False) / "text"
    return _path(cache, "cache").expanduser().absolute()


def _path(value: str | os.PathLike[str], name: str) -> Path:
    try:
        return Path(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: must be a path") from None


def tokenizer_file(tokenizer: str | os.PathLike[str]) -> Path:
    """The file of a given tokeniser; raises DataUnavailableError when it is not there."""
    file = _path(tokenizer, "tokenizer").expanduser()
    if not file.is_file():
        raise DataUnavailableError(
            f"tokenizer={str(file)!r}: is not there; give a tokenizer.json that exists, or None to train one"
        )
    return file


def _check_apart(files: dict[str, tuple[Path, ...]]) -> None:
    roles: dict[Path, str] = {}
    for role, paths in files.items():
        for path in paths:
            other = roles.setdefault(path.resolve(), role)
            if other != role:
                raise ValueError(
                    f"{role}: {str(path)!r} is among the files of {other}, too; what is held out must not be "
                    f"trained on: move it, or give {other} as a list of files without it"
                )


def _stream(folder: Path) -> TextStream:
    """The stream that lies in a cache folder."""
    manifest = packing.manifest_of(folder)
    settings, sizes = manifest["settings"], manifest["sequences"]
    length = settings["sequence_length"]
    test_x, test_y = packing.opened(folder, packing.TEST, sizes[packing.TEST], length, "r")
    data = TextData(
        folder, TEXT, manifest["vocabulary"], length, manifest["digest"], manifest["corpus"], test_x, test_y
    )
    return TextStream(data, settings["ticks"], settings["seed"], sizes[packing.train_file(1)], sizes[packing.VALID])


def _reopen(folder: str, digest: str) -> TextStream:
    stream = _stream(Path(folder))
    if stream.data.digest != digest:
        raise ValueError(
            f"{folder}: holds the digest {stream.data.digest}, and what was pickled had {digest}; "
            "make the stream again with text_stream"
        )
    return stream


def _reopen_data(folder: str, digest: str) -> TextData:
    return _reopen(folder, digest).data
