"""A submission as a zip archive, every byte of which was chosen by a stranger.

Of the standard library's reader only the table of contents is used. What it says is checked before anything is
decompressed, and each file is decompressed here, up to the size that it may have and no byte further: that an archive
says something else about itself does not matter.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping

from leaderboard.errors import PackageError
from leaderboard.package import (
    MAXIMUM_BYTES,
    MAXIMUM_FILE_BYTES,
    MAXIMUM_FILES,
    MEBIBYTE,
    Package,
    Sizes,
    belongs_elsewhere,
    require_names,
)
from leaderboard.text_rules import shown

MAXIMUM_ARCHIVE_BYTES = MAXIMUM_BYTES + MEBIBYTE  # every package fits, not compressed
MAXIMUM_ENTRIES = 2 * MAXIMUM_FILES  # with folders, and what is left out
MAXIMUM_RATIO = 100  # of decompressed to compressed; text reaches about 20
FREE_BYTES = 64 * 1024  # below which no ratio is looked at
_CONTENTS_BYTES = MAXIMUM_ENTRIES * 2048  # of the table of contents; an entry has about 100
_SYMLINK_OF_WINDOWS = 0x400  # reparse point
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_REPACK = "pack the folder anew, for example with `zip -r my_agent.zip my_agent`"
# What the standard library's reader raises on broken archives, beside its own error.
_BROKEN = (zipfile.BadZipFile, struct.error, ValueError, OSError, NotImplementedError, LookupError, EOFError)


def from_zip(archive: bytes) -> Package:
    """The package in a zip archive. A single folder around the submission, as archivers make it, is taken off.

    Raises:
        PackageError: it is broken, or breaks rules.
    """
    if len(archive) > MAXIMUM_ARCHIVE_BYTES:
        raise PackageError(
            f"archive: larger than {MAXIMUM_ARCHIVE_BYTES // MEBIBYTE} MiB, the most that is read; "
            "leave out what agent.py does not need"
        )
    _check_end(archive)
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entries = opened.infolist()
    except _BROKEN as error:
        raise PackageError(f"archive: not a readable zip ({shown(str(error))}); {_REPACK}") from error
    entries.sort(key=lambda entry: entry.header_offset)
    kept, left_out = _choose(entries)
    spans = _spans(archive, entries)
    sizes = Sizes()
    files = {name: _decompress(archive, entry, spans[entry.header_offset], sizes) for name, entry in kept.items()}
    return Package(_without_folder_around(files), tuple(left_out))


def _check_end(archive: bytes) -> None:
    """Look at the record at the archive's end before a library believes it."""
    if not archive.startswith(b"PK\x03\x04"):
        raise PackageError(f"archive: does not begin as a zip with files in it does; {_REPACK}")
    end = len(archive) - 22
    if archive[end : end + 4] != b"PK\x05\x06" or archive[-2:] != b"\0\0":
        end = archive.rfind(b"PK\x05\x06", max(0, len(archive) - 22 - 0xFFFF))
    if end < 0 or end + 22 > len(archive):
        raise PackageError(f"archive: its table of contents is missing, so it was cut short; {_REPACK}")
    disk, first_disk, _, count, size, offset, comment = struct.unpack("<4H2LH", archive[end + 4 : end + 22])
    if archive[max(0, end - 20) : end].startswith(b"PK\x06\x07") or disk or first_disk:
        raise PackageError(f"archive: of the large or divided kind, which no submission needs; {_REPACK}")
    if count > MAXIMUM_ENTRIES or size > _CONTENTS_BYTES:
        raise PackageError(
            f"archive: {count} entries in a table of {size} bytes; a submission has at most {MAXIMUM_FILES} files; "
            "leave out what agent.py does not need"
        )
    if offset + size != end or end + 22 + comment != len(archive):
        raise PackageError(f"archive: something stands before, between or after its parts; {_REPACK}")


def _choose(entries: list[zipfile.ZipInfo]) -> tuple[dict[str, zipfile.ZipInfo], list[str]]:
    """The entries that are files of the submission, by name, and the names that are left out."""
    if len(entries) > MAXIMUM_ENTRIES:
        raise PackageError(f"archive: {len(entries)} entries; at most {MAXIMUM_ENTRIES} are read; {_REPACK}")
    names: list[str] = []
    kept: dict[str, zipfile.ZipInfo] = {}
    left_out = []
    for entry in entries:
        name = entry.orig_filename
        folder = name.endswith("/")
        _check_kind(entry, name, folder)
        if name in names:
            raise PackageError(f"{shown(name)}: stands there twice, and readers differ in which they take; {_REPACK}")
        names.append(name)
        path = name.removesuffix("/")
        if any(map(belongs_elsewhere, path.split("/"))):
            require_names([path])
            left_out.append(path)
        elif folder:
            require_names([path])
        else:
            kept[name] = entry
    require_names(kept)
    for name in names:
        if name.endswith("/") and name.removesuffix("/") in kept:
            raise PackageError(f"{shown(name)}: a file and a folder; rename one of them")
    return kept, left_out


def _check_kind(entry: zipfile.ZipInfo, name: str, folder: bool) -> None:
    if entry.filename != name:
        raise PackageError(f"{shown(name)}: its name reads otherwise on another system; {_REPACK}")
    if entry.flag_bits & 0x2041:  # encrypted, strongly encrypted, names hidden
        raise PackageError(f"{shown(name)}: encrypted, and nobody here has the password; {_REPACK}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK or entry.external_attr & _SYMLINK_OF_WINDOWS:
        raise PackageError(f"{shown(name)}: a symbolic link, which could lead out; put the file itself there")
    if kind not in (0, stat.S_IFDIR if folder else stat.S_IFREG):
        raise PackageError(f"{shown(name)}: neither a plain file nor a folder; a submission has nothing else")
    if folder and entry.file_size:
        raise PackageError(f"{shown(name)}: a folder with content of its own; {_REPACK}")
    if entry.compress_type not in _METHODS:
        raise PackageError(
            f"{shown(name)}: compressed by method {entry.compress_type}; only {' and '.join(_METHODS.values())} are "
            f"read; {_REPACK}"
        )


def _spans(archive: bytes, entries: list[zipfile.ZipInfo]) -> dict[int, tuple[int, int]]:
    """Where each entry's compressed bytes begin and end, by the entry's offset; none shares a byte with another."""
    spans = {}
    last = 0
    for entry in entries:
        start = entry.header_offset
        header = archive[start : start + 30]
        if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
            raise PackageError(f"{shown(entry.filename)}: nothing stands where it should begin; {_REPACK}")
        flags, method, name_length, extra_length = struct.unpack("<6xHH16xHH", header)
        name = archive[start + 30 : start + 30 + name_length]
        codec = "utf-8" if entry.flag_bits & 0x800 else "cp437"
        if name != entry.orig_filename.encode(codec, "replace") or (flags ^ entry.flag_bits) & 0x2041:
            raise PackageError(f"{shown(entry.filename)}: has another name or kind in its own header; {_REPACK}")
        if method != entry.compress_type:
            raise PackageError(f"{shown(entry.filename)}: compressed in two ways at once; {_REPACK}")
        begin = start + 30 + name_length + extra_length
        if start < last or begin + entry.compress_size > len(archive):
            raise PackageError(f"{shown(entry.filename)}: shares its bytes with another, as bombs do; {_REPACK}")
        last = begin + entry.compress_size
        spans[start] = (begin, last)
    return spans


def _decompress(archive: bytes, entry: zipfile.ZipInfo, span: tuple[int, int], sizes: Sizes) -> bytes:
    name = entry.filename
    compressed = memoryview(archive)[span[0] : span[1]]
    allowed = max(FREE_BYTES, MAXIMUM_RATIO * len(compressed))
    most = min(MAXIMUM_FILE_BYTES, MAXIMUM_BYTES - sizes.total)
    if entry.compress_type == zipfile.ZIP_STORED:
        content, whole = bytes(compressed), True
    else:
        inflating = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            # One byte more than is allowed tells a bomb, and nothing of it is kept.
            content = inflating.decompress(compressed, min(allowed, most) + 1)
        except zlib.error as error:
            raise PackageError(f"{shown(name)}: cannot be decompressed ({error}); {_REPACK}") from error
        whole = inflating.eof and not inflating.unused_data
    if len(content) > allowed:
        raise PackageError(
            f"{shown(name)}: more than {MAXIMUM_RATIO} times as large as it is compressed, as bombs are; "
            "take out what repeats itself"
        )
    sizes.add(name, len(content))
    if not whole or len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
        raise PackageError(
            f"{shown(name)}: not the size or checksum that the archive says, so it is damaged; {_REPACK}"
        )
    return content


def _without_folder_around(files: Mapping[str, bytes]) -> dict[str, bytes]:
    tops = {path.split("/")[0] for path in files}
    if len(tops) == 1 and f"{tops.copy().pop()}/submission.toml" in files:
        return {path.split("/", 1)[1]: content for path, content in files.items()}
    return dict(files)
