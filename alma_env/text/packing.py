"""Documents as sequences of tokens, one file per mega-batch, in a folder with a manifest (ALMA paper, section 4.2)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from alma_env import tokens
from alma_env.corpus import content_digest, spooled
from alma_env.errors import DataUnavailableError
from alma_env.stream import Indices, _order

FORMAT = 1  # of a folder; part of its key
MANIFEST, TOKENIZER, VALID, TEST = "manifest.json", "tokenizer.json", "valid.tokens", "test.tokens"

# Keeps the order of the documents apart from the draws of alma_env.stream.
_DOCUMENTS = (0x414C4D41, 2)


def train_file(t: int) -> str:
    """The name of the file of mega-batch t."""
    return f"train-{t}.tokens"


@dataclass(frozen=True)
class Recipe:
    """What a folder of tokens is made of; see `alma_env.text.text_stream` for the arguments.

    files: those of "train", "valid" and, unless one more part of the stream is to be held out, "test". length is
    that of a sequence, in tokens.
    """

    files: dict[str, tuple[Path, ...]]
    ticks: int
    seed: int
    length: int
    vocabulary_size: int
    tokenizer: Path | None

    def stamps(self) -> list[tuple[int, int]]:
        """Size and time of change (ns) of each file."""
        files = [file for files in self.files.values() for file in files]
        stats = [file.stat() for file in (*files, *([self.tokenizer] if self.tokenizer else []))]
        return [(stat.st_size, stat.st_mtime_ns) for stat in stats]

    def settings(self) -> dict[str, Any]:
        """The arguments, and what else the tokens depend on beside the text."""
        return {
            "format": FORMAT,
            "tokenizers": tokens.tokenizers().__version__,
            "ticks": self.ticks,
            "seed": self.seed,
            "sequence_length": self.length,
            "vocabulary_size": self.vocabulary_size if self.tokenizer is None else None,
            "tokenizer": None if self.tokenizer is None else _digest(self.tokenizer),
        }

    def key(self) -> str:
        """xxh3_128 (hex) of the settings and of the bytes of all files."""
        key = xxhash.xxh3_128(json.dumps(self.settings()).encode())
        for role, files in self.files.items():
            key.update(f" {role} {len(files)} ".encode())
            content_digest(files, key)
        return str(key.hexdigest())


def make(recipe: Recipe, folder: Path) -> None:
    """Fill the folder: text as it comes, tokeniser, tokens, manifest. Holds one batch of documents at a time.

    Raises ValueError when the text does not suffice, and what `alma_env.corpus.spooled` raises.
    """
    corpus = {role: spooled(files, folder, role) for role, files in recipe.files.items()}
    stream = corpus["train"]
    parts = _parts(recipe, len(stream))
    first = stream.read(parts[train_file(1)])
    # A merge needs a byte of text; and the library reserves memory for as many tokens as it is told.
    most = min(recipe.vocabulary_size, tokens.SMALLEST_VOCABULARY + stream.text.stat().st_size)
    tokenizer = _tokenizer(recipe, first, most, folder / TOKENIZER)
    documents = {name: (stream, rows) for name, rows in parts.items()}
    documents |= {f"{role}.tokens": (held, np.arange(len(held))) for role, held in corpus.items() if held is not stream}
    counts = {
        name: tokens.write(tokenizer, source.read(rows), folder / name, cut=recipe.tokenizer is None)
        for name, (source, rows) in documents.items()
    }
    for source in corpus.values():
        source.remove()

    smallest = min(parts, key=counts.__getitem__)  # to which all parts of the stream are cut
    sequences = {name: _whole(recipe, smallest if name in parts else name, counts) for name in counts}
    for name, n in sequences.items():
        os.truncate(folder / name, (n * recipe.length + 1) * tokens.ID.itemsize)
    files = {name: _entry(folder / name) for name in (*counts, TOKENIZER)}
    manifest = {
        "settings": recipe.settings(),
        "sources": {role: [file.name for file in files] for role, files in recipe.files.items()},
        "corpus": _digest_of({role: source.digest for role, source in corpus.items()}),
        "documents": {name: len(rows) for name, (_, rows) in documents.items()},
        "tokens": counts,  # before the cut to whole sequences
        "sequences": sequences,
        "vocabulary": tokens.vocabulary_of(tokenizer),
        "files": files,
        "digest": _digest_of([recipe.length, files]),
    }
    manifest["check"] = _digest_of(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _parts(recipe: Recipe, n: int) -> dict[str, Indices]:
    """The documents of each mega-batch, and of the hidden test part if none was given, by the names of their files."""
    hidden = [] if "test" in recipe.files else [TEST]
    k = recipe.ticks + len(hidden)
    if n < k:
        remedy = "give more text or fewer ticks" + (", or a test set of your own" if hidden else "")
        raise ValueError(f"ticks={recipe.ticks}: train has {n} documents for {k} parts; {remedy}")
    order = _order(n, recipe.seed, _DOCUMENTS)
    names = [*(train_file(t) for t in range(1, recipe.ticks + 1)), *hidden]
    return {name: order[n * i // k : n * (i + 1) // k] for i, name in enumerate(names)}


def _tokenizer(recipe: Recipe, texts: Iterable[str], most: int, file: Path) -> Any:
    """The tokeniser that was given, or one of at most `most` tokens trained on the texts; either is kept in `file`."""
    if recipe.tokenizer is None:
        tokens.trained(texts, most).save(str(file))
        return tokens.loaded(file)
    file.write_bytes(recipe.tokenizer.read_bytes())
    return tokens.loaded(file, named=recipe.tokenizer)


def _whole(recipe: Recipe, name: str, counts: dict[str, int]) -> int:
    """How many sequences, each followed by one more token, there are in a file."""
    if counts[name] <= recipe.length:
        part = name.removesuffix(".tokens")
        remedy = "lower sequence_length" if name == VALID else "lower sequence_length or ticks"
        raise ValueError(
            f"sequence_length={recipe.length}: the part {part!r} has {counts[name]} tokens, which do not fill a "
            f"sequence and the token after it ({recipe.length + 1}); {remedy}, or give more text"
        )
    return (counts[name] - 1) // recipe.length


def _entry(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "digest": _digest(file)}


def _digest(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return str(digest.hexdigest())


def _digest_of(value: Any) -> str:
    return str(xxhash.xxh3_128(json.dumps(value).encode()).hexdigest())


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; the files have the sizes that it says.

    Raises DataUnavailableError for a folder that is damaged.
    """
    if not folder.is_dir():
        raise DataUnavailableError(f"{folder}: is not there; make it again with text_stream and the same arguments")
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest.pop("check") != _digest_of(manifest):
            raise ValueError("it is not what was written")
    except FileNotFoundError as error:
        raise _damaged(folder, f"{MANIFEST} is missing") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(folder, f"{MANIFEST} cannot be read ({error})") from error
    for name, entry in manifest["files"].items():
        file = folder / name
        if not file.is_file():
            raise _damaged(folder, f"{name} is missing")
        if file.stat().st_size != entry["bytes"]:
            raise _damaged(folder, f"{name} has {file.stat().st_size} bytes instead of {entry['bytes']}")
    return manifest


def verify(folder: Path) -> None:
    """Compare all files of a folder with their digests.

    Raises DataUnavailableError when one differs.
    """
    for name, entry in manifest_of(folder)["files"].items():
        if _digest(folder / name) != entry["digest"]:
            raise _damaged(folder, f"{name} is not what was written")


def opened(folder: Path, name: str, n: int, length: int, mode: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """x and y, int32 (n, length), of a file of the folder, memory-mapped; see `alma_env.tokens.sequences`.

    Raises DataUnavailableError when the file is gone or too short.
    """
    try:
        return tokens.sequences(folder / name, n, length, mode)
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{name} cannot be opened ({error})") from error


def _damaged(folder: Path, why: str) -> DataUnavailableError:
    return DataUnavailableError(f"{folder}: {why}; delete this folder, and text_stream will make it again")
