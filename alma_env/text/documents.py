"""Documents: files of plain text are split into documents (ALMA paper, section 4.2: a stream of text).

Blank lines, and the end of a file, separate documents. They are found in one pass and concatenated in one file, so that
they can be read in any order while the corpus is not in memory.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from alma_env.errors import ArgumentTypeError, DataUnavailableError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_OPENERS: dict[str, Callable[..., IO[bytes]]] = {".txt": open, ".gz": gzip.open, ".bz2": bz2.open}  # type: ignore[dict-item]
_BYTE_ORDER_MARK = "\ufeff".encode()


def files_of(paths: Paths, role: str) -> tuple[Path, ...]:
    """Return the files of a folder, a file, or a list of files, sorted by name.

    In a folder, files that end in .txt, .gz or .bz2 are read. Files that start with a dot, archives (.tar.gz) and
    sub-folders are not read. Errors name the argument `role`.

    Raises:
        DataUnavailableError: a file is missing, or a folder has no text files.
        ValueError: the list is empty, repeats a file, or has a file of another type.
        TypeError: `paths` is not a path or a list of paths.
    """
    if isinstance(paths, (str, os.PathLike)):
        given = Path(paths).expanduser()
        if not given.is_dir():
            return (_checked(given, role),)
        found = [file for file in given.iterdir() if file.is_file() and file.name[0] != "." and _suffix(file)]
        if not found:
            raise DataUnavailableError(
                f"{role}={str(paths)!r}: no file in this folder ends in {', '.join(_OPENERS)}; "
                "put the text there, or pass a list of files"
            )
    else:
        try:
            found = [_checked(Path(path).expanduser(), role) for path in paths]
        except TypeError:
            raise ArgumentTypeError(
                f"{role}={paths!r}: must be a folder, a file or a list of files, such as 'books/'"
            ) from None
        if not found:
            raise ValueError(f"{role}={paths!r}: must not be empty; pass at least one file")
    if len({file.resolve() for file in found}) < len(found):
        raise ValueError(f"{role}={paths!r}: has a file twice; remove one of them")
    return tuple(sorted(found, key=lambda file: file.name))


def _checked(file: Path, role: str) -> Path:
    if file.is_dir():
        raise ValueError(f"{role}: {str(file)!r} in a list is a folder; pass the folder alone, or list its files")
    if not file.is_file():
        raise DataUnavailableError(f"{role}: {str(file)!r} does not exist; pass an existing folder or file")
    if not _suffix(file):
        raise ValueError(
            f"{role}: {str(file)!r} must end in one of {', '.join(_OPENERS)}; rename, convert or unpack it"
        )
    return file


def _suffix(file: Path) -> str:
    suffix = file.suffix.lower()
    archive = Path(file.stem).suffix.lower() == ".tar"
    return suffix if suffix in _OPENERS and not archive else ""


def content_digest(files: Iterable[Path], digest: Any) -> None:
    """Update `digest` (of xxhash) with the bytes of the files on disk, one block at a time."""
    for file in files:
        with file.open("rb") as opened:
            digest.update(f"{_suffix(file)} {file.stat().st_size} ".encode())
            hashlib.file_digest(opened, lambda: digest)


def documents(file: Path) -> Iterator[bytes]:
    r"""Yield the documents of a file in UTF-8: runs of lines that are not blank, without the last line end.

    A line of Unicode white space only is blank. \r\n is read as \n, and a byte order mark is skipped.

    Raises:
        ValueError: the text is not UTF-8.
        DataUnavailableError: the file cannot be read.
    """
    lines: list[bytes] = []
    position = 0  # of the line in the file, in bytes, after decompression
    try:
        with _OPENERS[_suffix(file)](file, "rb") as opened:
            for line in opened:
                text = line.decode()
                if position == 0 and line.startswith(_BYTE_ORDER_MARK):
                    position = len(_BYTE_ORDER_MARK)
                    line, text = line[position:], text[1:]
                if text == "" or text.isspace():
                    if lines:
                        yield b"\n".join(lines)
                        lines = []
                else:
                    lines.append(line.removesuffix(b"\r\n") if line.endswith(b"\r\n") else line.removesuffix(b"\n"))
                position += len(line)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file}: byte {position + error.start} ({error.object[error.start]:#04x}) is not UTF-8; "
            "convert the file, for example with iconv"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataUnavailableError(
            f"{file}: cannot be read ({error}); check that it is complete and that you have read permission"
        ) from error
    if lines:
        yield b"\n".join(lines)


@dataclass(frozen=True)
class Documents:
    """Documents, concatenated in one file."""

    text: Path
    offsets: Path  # int64 (number of documents + 1,): document i is at bytes offsets[i] to offsets[i + 1]
    digest: str  # xxh3_128 (hex) of the documents, independent of their files

    def __len__(self) -> int:
        return self.offsets.stat().st_size // 8 - 1

    def read(self, rows: NDArray[np.int64]) -> Iterator[str]:
        """Yield the documents with these numbers, in this order."""
        offsets = np.memmap(self.offsets, dtype="<i8", mode="r")
        # Not memory-mapped: the pages of a map would count as memory of this process.
        with self.text.open("rb") as file:
            for row in rows:
                start, end = offsets[row : row + 2].tolist()
                file.seek(start)
                yield file.read(end - start).decode()

    def remove(self) -> None:
        """Delete both files."""
        self.text.unlink()
        self.offsets.unlink()


def concatenate(files: Sequence[Path], folder: Path, role: str) -> Documents:
    """Write the documents of the files, in order, to files in `folder` whose names start with `role`."""
    digest = xxhash.xxh3_128()
    text, offsets = folder / f"{role}.text", folder / f"{role}.offsets"
    position = 0
    with text.open("wb") as text_file, offsets.open("wb") as offsets_file:
        offsets_file.write(bytes(8))
        for file in files:
            for document in documents(file):
                digest.update(b"%d " % len(document))
                digest.update(document)
                text_file.write(document)
                position += len(document)
                offsets_file.write(position.to_bytes(8, "little"))
    if position == 0:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{role}: no document in {names}, only blank lines; pass text")
    return Documents(text, offsets, digest.hexdigest())
