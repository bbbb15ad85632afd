"""Tokenizers: byte-level BPE (ALMA paper, appendix on language modelling), and files of token ids.

This module uses Hugging Face's `tokenizers`, an optional extra, which is imported on first use.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alma_env.errors import MissingPackageError, how_to_install

END_OF_TEXT = "<|endoftext|>"
SMALLEST_VOCABULARY = 257  # 256 bytes and the end of a text
LARGEST_VOCABULARY = 2**31  # ids are int32
ID = np.dtype("<i4")

_PIECE = 1 << 16  # characters
_BATCH = 1 << 18  # characters; an encoded character takes about twenty bytes
# No word of byte-level BPE contains a single line end between two visible characters.
_SEAM = re.compile(r"(?<=\S)\n(?=\S)")


def tokenizers() -> Any:
    """Return the package `tokenizers`, or raise MissingPackageError."""
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise MissingPackageError(
            f"streams of text need the package tokenizers, which is not installed: {how_to_install('text')}"
        ) from error


def trained(texts: Iterable[str], vocabulary_size: int) -> Any:
    """Train a byte-level BPE tokenizer of at most `vocabulary_size` tokens, with END_OF_TEXT (id 0) and the 256 bytes.

    The result depends on the multiset of texts, but not on their order or the number of threads. Memory grows with the
    number of different words.
    """
    library = tokenizers()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # In pieces: the library reads 256 texts at a time, and a text may be a whole book.
    tokenizer.train_from_iterator((piece for text in texts for piece in pieces(text)), trainer)
    return tokenizer


def loaded(file: Path, *, named: Path | None = None) -> Any:
    """Load a tokenizer.json, and disable truncation, padding and special tokens in texts.

    Errors name the file `named` if `file` is a copy.

    Raises:
        ValueError: the file is not a tokenizer, has no token END_OF_TEXT, or does not restore every text.
    """
    library, name = tokenizers(), str(named or file)
    try:
        tokenizer = library.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(
            f"tokenizer={name!r}: cannot be read ({error}); pass a tokenizer.json of Hugging Face's tokenizers"
        ) from error
    if tokenizer.token_to_id(END_OF_TEXT) is None:
        raise ValueError(
            f"tokenizer={name!r}: has no token {END_OF_TEXT}, which separates documents; "
            "add it as a special token, or train a tokenizer with tokenizer=None"
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # The characters "<|endoftext|>" in a text are text and must not end the document.
    tokenizer.encode_special_tokens = True
    _require_lossless(tokenizer, name)
    return tokenizer


def _require_lossless(tokenizer: Any, name: str) -> None:
    """Require that decoding restores the text: the perplexity would silently omit lost text."""
    if tokenizer.decoder is None:
        tokenizer.decoder = tokenizers().decoders.ByteLevel()
    try:
        back = tokenizer.decode(tokenizer.encode(_PROBE, add_special_tokens=False).ids, skip_special_tokens=False)
    except Exception as error:  # the library raises no narrower class
        raise ValueError(f"tokenizer={name!r}: cannot encode {_PROBE!r} ({error}); {_BYTE_LEVEL}") from error
    if back.removeprefix(" ") != _PROBE:
        raise ValueError(f"tokenizer={name!r}: decodes {_PROBE!r} as {back!r}; {_BYTE_LEVEL}")


_PROBE = "Naïve “Text”,\n\tδοκιμή 漢字 🙂: 1 + 1 = 2"
_BYTE_LEVEL = "pass a byte-level tokenizer, which restores every text, or train one with tokenizer=None"


def vocabulary_of(tokenizer: Any) -> int:
    """Return the number of ids that a model needs: the largest id + 1."""
    return int(max(tokenizer.get_vocab(with_added_tokens=True).values())) + 1


def pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces of about `_PIECE` characters; byte-level BPE encodes them like the whole text."""
    start = 0
    while len(text) - start > _PIECE and (seam := _SEAM.search(text, start + _PIECE)):
        yield text[start : seam.end()]
        start = seam.end()
    yield text[start:]


def write(tokenizer: Any, texts: Iterable[str], file: Path, *, cut: bool) -> int:
    """Write the ids of the texts, with END_OF_TEXT after each text, as int32 (little-endian); return their number.

    With `cut`, long texts may be encoded in `pieces`, as for a tokenizer of `trained`.
    """
    end, count = tokenizer.token_to_id(END_OF_TEXT), 0
    with file.open("wb") as out:
        for batch in _batches(texts, cut=cut):
            encodings = tokenizer.encode_batch_fast([piece for piece, _ in batch], add_special_tokens=False)
            for encoding, (_, last) in zip(encodings, batch, strict=True):
                ids = [*encoding.ids, end] if last else encoding.ids
                out.write(np.array(ids, dtype=ID).data)
                count += len(ids)
    return count


def _batches(texts: Iterable[str], *, cut: bool) -> Iterator[list[tuple[str, bool]]]:
    """Yield lists of (piece, whether it is the last of its text) of about `_BATCH` characters."""
    batch: list[tuple[str, bool]] = []
    size = 0
    for text in texts:
        parts = list(pieces(text)) if cut else [text]
        for i, piece in enumerate(parts, start=1):
            batch.append((piece, i == len(parts)))
            size += len(piece)
            if size >= _BATCH:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch
