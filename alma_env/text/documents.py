"""A corpus: files of plain text, and the documents in them (ALMA paper, section 4.2: a stream of text).

Documents are separated by blank lines, and by the end of a file. They are found in one pass and laid one after
another into one file, so that they can be read in any order without holding the corpus in memory.
"""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from alma_env.errors import DataUnavailableError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_OPENERS: dict[str, Callable[..., IO[bytes]]] = {".txt": open, ".gz": gzip.open, ".bz2": bz2.open}  # type: ignore[dict-item]
_BYTE_ORDER_MARK = "\ufeff".encode()


def files_of(paths: Paths, role: str) -> tuple[Path, ...]:
    """The files of a folder, a file, or a list of files, by name; `role` names the argument in errors.

    Of a folder, those that end in .txt, .gz or .bz2 and do not begin with a dot; archives (.tar.gz) and sub-folders are
    not read.
    """
    if isinstance(paths, (str, os.PathLike)):
        given = Path(paths).expanduser()
        if not given.is_dir():
            return (_checked(given, role),)
        found = [file for file in given.iterdir() if file.is_file() and file.name[0] != "." and _suffix(file)]
        if not found:
            raise DataUnavailableError(
                f"{role}={str(paths)!r}: no file in this folder ends in {', '.join(_OPENERS)}; "
                "put the text there, or give a list of files"
            )
    else:
        try:
            found = [_checked(Path(path).expanduser(), role) for path in paths]
        except TypeError:
            raise TypeError(f"{role}={paths!r}: must be a folder, a file or a list of files") from None
        if not found:
            raise ValueError(f"{role}={paths!r}: an empty list; give one file at least")
    if len({file.resolve() for file in found}) < len(found):
        raise ValueError(f"{role}={paths!r}: holds a file twice; remove one of them")
    return tuple(sorted(found, key=lambda file: file.name))


def _checked(file: Path, role: str) -> Path:
    if not file.is_file():
        raise DataUnavailableError(f"{role}: {str(file)!r} is not there; give a folder or a file that exists")
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
    """Update `digest` (of xxhash) by the bytes of the files as they lie on the disk, a block at a time."""
    for file in files:
        with file.open("rb") as opened:
            digest.update(f"{_suffix(file)} {file.stat().st_size} ".encode())
            while block := opened.read(1 << 20):
                digest.update(block)


def documents(file: Path) -> Iterator[bytes]:
    r"""The documents of a file in UTF-8: runs of lines that are not blank, without the end of the last line.

    A line that holds nothing but white space (of Unicode) is blank. \r\n counts as \n, a byte order mark as nothing.

    Raises ValueError for text that is not UTF-8, DataUnavailableError for a file that cannot be read.
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
            "convert the file, for instance with iconv"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataUnavailableError(
            f"{file}: cannot be read ({error}); see that it is whole and that you may read it"
        ) from error
    if lines:
        yield b"\n".join(lines)


@dataclass(frozen=True)
class Documents:
    """Documents in one file, one after another."""

    text: Path
    offsets: Path  # int64 (number of documents + 1,): document i lies at bytes offsets[i] to offsets[i + 1]
    digest: str  # xxh3_128 (hex) of the documents, however they came in files

    def __len__(self) -> int:
        return self.offsets.stat().st_size // 8 - 1

    def read(self, rows: NDArray[np.int64]) -> Iterator[str]:
        """The documents of these numbers, in this order, one at a time."""
        offsets = np.memmap(self.offsets, dtype="<i8", mode="r")
        # The text is not memory-mapped: pages of a map would count as this process' memory.
        with self.text.open("rb") as file:
            for row in rows:
                start, end = offsets[row : row + 2].tolist()
                file.seek(start)
                yield file.read(end - start).decode()

    def remove(self) -> None:
        """Delete both files."""
        self.text.unlink()
        self.offsets.unlink()


def spooled(files: Sequence[Path], folder: Path, role: str) -> Documents:
    """The documents of the files, in order, laid into files of `folder` that begin with `role`.

    Raises ValueError when there is no document, and what `documents` raises.
    """
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
        raise ValueError(f"{role}: there is no document in {names}, only blank lines; give text")
    return Documents(text, offsets, digest.hexdigest())
