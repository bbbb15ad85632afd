"""Packing: documents become sequences of tokens, one file per mega-batch, in a folder with a manifest.

ALMA paper, section 4.2.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from alma_env.data.permutation import Indices, permutation
from alma_env.errors import DataUnavailableError
from alma_env.files import file_digest
from alma_env.text import tokenizer as tokens
from alma_env.text.arguments import TextArguments
from alma_env.text.documents import concatenate

MANIFEST, TOKENIZER, VALID, TEST = "manifest.json", "tokenizer.json", "valid.tokens", "test.tokens"

# Key of the permutation of the documents.
_DOCUMENTS = (0x414C4D41, 2)


def train_file(t: int) -> str:
    """Return the file name of mega-batch t."""
    return f"train-{t}.tokens"


def pack(arguments: TextArguments, folder: Path) -> None:
    """Write tokenizer, tokens and manifest into the folder. Only one batch of documents is in memory at a time."""
    corpus = {role: concatenate(files, folder, role) for role, files in arguments.files.items()}
    stream = corpus["train"]
    parts = _parts(arguments, len(stream))
    first = stream.read(parts[train_file(1)])
    # Each merge needs a byte of text, and the library reserves memory for all requested tokens.
    most = min(arguments.vocabulary_size, tokens.SMALLEST_VOCABULARY + stream.text.stat().st_size)
    tokenizer = _tokenizer(arguments, first, most, folder / TOKENIZER)
    documents = {name: (stream, rows) for name, rows in parts.items()}
    documents |= {f"{role}.tokens": (held, np.arange(len(held))) for role, held in corpus.items() if held is not stream}
    counts = {
        name: tokens.write(tokenizer, source.read(rows), folder / name, cut=arguments.tokenizer is None)
        for name, (source, rows) in documents.items()
    }
    for source in corpus.values():
        source.remove()

    smallest = min(parts, key=counts.__getitem__)  # all parts of the stream get its number of sequences
    sequences = {name: _sequences_in(arguments, smallest if name in parts else name, counts) for name in counts}
    for name, n in sequences.items():
        os.truncate(folder / name, (n * arguments.length + 1) * tokens.ID.itemsize)
    paths = {name: folder / name for name in (*counts, TOKENIZER)}
    files = {name: {"bytes": path.stat().st_size, "digest": file_digest(path)} for name, path in paths.items()}
    manifest = {
        "settings": arguments.settings(),
        "sources": {role: [file.name for file in files] for role, files in arguments.files.items()},
        "corpus": _digest_of({role: source.digest for role, source in corpus.items()}),
        "documents": {name: len(rows) for name, (_, rows) in documents.items()},
        "tokens": counts,  # before the cut to whole sequences
        "sequences": sequences,
        "vocabulary": tokens.vocabulary_of(tokenizer),
        "files": files,
        "digest": _digest_of([arguments.length, files]),
    }
    manifest["check"] = _digest_of(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _parts(arguments: TextArguments, n: int) -> dict[str, Indices]:
    """Return the documents of each mega-batch, and of the hidden test part without a given one, by file name."""
    hidden = [] if "test" in arguments.files else [TEST]
    k = arguments.ticks + len(hidden)
    if n < k:
        remedy = "pass more text or fewer ticks" + (", or pass a test set" if hidden else "")
        raise ValueError(f"ticks={arguments.ticks}: train has {n} documents for {k} parts; {remedy}")
    order = permutation(n, arguments.seed, _DOCUMENTS)
    names = [*(train_file(t) for t in range(1, arguments.ticks + 1)), *hidden]
    return {name: order[n * i // k : n * (i + 1) // k] for i, name in enumerate(names)}


def _tokenizer(arguments: TextArguments, texts: Iterable[str], most: int, file: Path) -> Any:
    """Return the given tokenizer, or one of at most `most` tokens trained on the texts, and write it to `file`."""
    if arguments.tokenizer is None:
        tokens.trained(texts, most).save(str(file))
        return tokens.loaded(file)
    file.write_bytes(arguments.tokenizer.read_bytes())
    return tokens.loaded(file, named=arguments.tokenizer)


def _sequences_in(arguments: TextArguments, name: str, counts: dict[str, int]) -> int:
    """Return the number of sequences in a file, each followed by one more token."""
    if counts[name] <= arguments.length:
        part = name.removesuffix(".tokens")
        remedy = "lower sequence_length" if name == VALID else "lower sequence_length or ticks"
        raise ValueError(
            f"sequence_length={arguments.length}: the part {part!r} has {counts[name]} tokens, but a sequence and the "
            f"next token need {arguments.length + 1}; {remedy}, or pass more text"
        )
    return (counts[name] - 1) // arguments.length


def _digest_of(value: Any) -> str:
    return str(xxhash.xxh3_128(json.dumps(value).encode()).hexdigest())


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; raise DataUnavailableError if it differs from the sizes of the files."""
    if not folder.is_dir():
        raise DataUnavailableError(f"{folder}: does not exist; make it again with text_stream and the same arguments")
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest.pop("check") != _digest_of(manifest):
            raise ValueError("its content has changed")
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


def opened(folder: Path, name: str, n: int, length: int, mode: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return x and y, int32 (n, length), of a file of n * length + 1 ids; y is the id after each id of x.

    The file is mapped twice, so that with mode "c" (copy on write) a change of x does not change y. If the file is
    missing or too short, DataUnavailableError is raised.
    """
    try:
        x, y = (
            np.memmap(folder / name, dtype=tokens.ID, mode=mode, offset=offset, shape=(n, length))  # type: ignore[call-overload]
            for offset in (0, tokens.ID.itemsize)
        )
        return x, y
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{name} cannot be opened ({error})") from error


def _damaged(folder: Path, why: str) -> DataUnavailableError:
    return DataUnavailableError(f"{folder}: {why}; delete this folder, and call text_stream again")
