"""Read a submission from a folder or a zip archive. A stranger chooses every byte of an archive.

The standard library reads only the table of contents, whose entries are checked before anything is decompressed. This
module decompresses each file itself and stops at the size limit, so an archive cannot lie about the sizes.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from leaderboard.errors import PackageError
from leaderboard.submission.package import (
    MAXIMUM_BYTES,
    MAXIMUM_FILE_BYTES,
    MAXIMUM_FILES,
    MEBIBYTE,
    Package,
    Sizes,
    from_folder,
    is_left_out,
    outside_problem,
    require_names,
)
from leaderboard.text_safety import shown

MAXIMUM_ARCHIVE_BYTES = MAXIMUM_BYTES + MEBIBYTE  # holds every package without compression
MAXIMUM_ENTRIES = 2 * MAXIMUM_FILES  # includes folders and files that are left out
MAXIMUM_RATIO = 100  # of decompressed to compressed; text reaches about 20
FREE_BYTES = 64 * 1024  # smaller files can have any ratio
_CONTENTS_BYTES = MAXIMUM_ENTRIES * 2048  # of the table of contents; an entry has about 100
_SYMLINK_OF_WINDOWS = 0x400  # reparse point
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_REPACK = "pack the folder again, for example with `zip -r my_agent.zip my_agent`"
_BYTES_OUTSIDE = f"archive: there are bytes before, between or after its parts; {_REPACK}"
_HAS_DESCRIPTOR = 0x08  # flag of an entry whose checksum and sizes follow its content
# The errors that the standard library raises on broken archives.
_BROKEN = (zipfile.BadZipFile, struct.error, ValueError, OSError, NotImplementedError, LookupError, EOFError)


def read(path: Path) -> Package:
    """Read the package in a folder or a zip archive, or raise PackageError if it breaks rules."""
    if path.is_dir():
        return from_folder(path)
    if not path.is_file():
        raise PackageError(f"{path}: neither a folder nor a file; give a folder with agent.py, or a zip of it")
    with open(path, "rb") as file:
        return from_zip(file.read(MAXIMUM_ARCHIVE_BYTES + 1))


def from_zip(archive: bytes) -> Package:
    """Read the package in a zip archive. A single folder around the submission, as archivers make it, is removed."""
    if len(archive) > MAXIMUM_ARCHIVE_BYTES:
        most = MAXIMUM_ARCHIVE_BYTES // MEBIBYTE
        raise PackageError(f"archive: larger than {most} MiB, the maximum; remove files that agent.py does not need")
    table = _check_end(archive)
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entries = opened.infolist()
    except _BROKEN as error:
        raise PackageError(f"archive: not a readable zip ({shown(str(error))}); {_REPACK}") from error
    entries.sort(key=lambda entry: entry.header_offset)
    kept, left_out = _choose(entries)
    spans = _spans(archive, entries, table)
    sizes = Sizes()
    files = {name: _decompress(archive, entry, spans[entry.header_offset], sizes) for name, entry in kept.items()}
    return Package(files, tuple(left_out))


def _check_end(archive: bytes) -> int:
    """Check the record at the archive's end before the library reads it, and return the offset of the table."""
    if not archive.startswith(b"PK\x03\x04"):
        raise PackageError(f"archive: must begin like a zip file that is not empty; {_REPACK}")
    end = len(archive) - 22
    if archive[end : end + 4] != b"PK\x05\x06" or archive[-2:] != b"\0\0":
        end = archive.rfind(b"PK\x05\x06", max(0, len(archive) - 22 - 0xFFFF))
    if end < 0 or end + 22 > len(archive):
        raise PackageError(f"archive: the table of contents is missing, so the archive is truncated; {_REPACK}")
    disk, first_disk, _, count, size, offset, comment = struct.unpack("<4H2LH", archive[end + 4 : end + 22])
    if archive[max(0, end - 20) : end].startswith(b"PK\x06\x07") or disk or first_disk:
        raise PackageError(f"archive: ZIP64 and multi-disk archives are not allowed; {_REPACK}")
    if count > MAXIMUM_ENTRIES or size > _CONTENTS_BYTES:
        raise PackageError(
            f"archive: {count} entries in a table of {size} bytes; a submission has at most {MAXIMUM_FILES} files; "
            "remove files that agent.py does not need"
        )
    if offset + size != end or end + 22 + comment != len(archive):
        raise PackageError(_BYTES_OUTSIDE)
    return int(offset)


def _choose(entries: list[zipfile.ZipInfo]) -> tuple[dict[str, zipfile.ZipInfo], list[str]]:
    """Return the entries that are files of the submission, by name, and the names that are left out."""
    if len(entries) > MAXIMUM_ENTRIES:
        raise PackageError(f"archive: {len(entries)} entries; at most {MAXIMUM_ENTRIES} are allowed; {_REPACK}")
    names: set[str] = set()
    files: dict[str, zipfile.ZipInfo] = {}
    folders = []
    left_out = []
    for entry in entries:
        name = entry.orig_filename
        folder = name.endswith("/")
        _check_kind(entry, name, folder)
        if name in names:
            raise PackageError(f"{shown(name)}: two entries have this name; {_REPACK}")
        names.add(name)
        path = name.removesuffix("/")
        if (problem := outside_problem(path)) is not None:
            raise PackageError(problem)
        if any(map(is_left_out, path.split("/"))):
            left_out.append(path)
        elif folder:
            folders.append(path)
        else:
            files[name] = entry
    around = _folder_around(files)
    kept = {name.removeprefix(around): entry for name, entry in files.items()}
    require_names(kept)
    for path in (path.removeprefix(around) for path in folders if f"{path}/" != around):
        require_names([path])
        if path in kept:
            raise PackageError(f"{shown(f'{path}/')}: a file and a folder; rename one of them")
    return kept, left_out


def _check_kind(entry: zipfile.ZipInfo, name: str, folder: bool) -> None:
    if entry.filename != name:
        raise PackageError(f"{shown(name)}: the name is different on another system; {_REPACK}")
    if entry.flag_bits & 0x2041:  # encrypted, strongly encrypted, names hidden
        raise PackageError(f"{shown(name)}: encrypted, but the password is unknown; {_REPACK}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK or entry.external_attr & _SYMLINK_OF_WINDOWS:
        raise PackageError(f"{shown(name)}: a symbolic link, which can point outside; replace it with the file")
    if kind not in (0, stat.S_IFDIR if folder else stat.S_IFREG):
        raise PackageError(f"{shown(name)}: not a regular file or folder; remove it")
    if folder and entry.file_size:
        raise PackageError(f"{shown(name)}: a folder cannot have content; {_REPACK}")
    if entry.compress_type not in _METHODS:
        rule = f"only {' and '.join(_METHODS.values())} are allowed; {_REPACK}"
        raise PackageError(f"{shown(name)}: compressed by method {entry.compress_type}; {rule}")


def _spans(archive: bytes, entries: list[zipfile.ZipInfo], table: int) -> dict[int, tuple[int, int]]:
    """Return begin and end of each entry's compressed bytes, by the entry's offset.

    The entries must follow each other from the first byte of the archive to its table, without gaps and overlaps.
    """
    spans = {}
    last = 0
    for entry in entries:
        start = entry.header_offset
        header = archive[start : start + 30]
        if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
            raise PackageError(f"{shown(entry.filename)}: the archive has no entry at this offset; {_REPACK}")
        flags, method, name_length, extra_length = struct.unpack("<6xHH16xHH", header)
        name = archive[start + 30 : start + 30 + name_length]
        codec = "utf-8" if entry.flag_bits & 0x800 else "cp437"
        if name != entry.orig_filename.encode(codec, "replace") or (flags ^ entry.flag_bits) & 0x2041:
            raise PackageError(f"{shown(entry.filename)}: name or flags differ from the entry's header; {_REPACK}")
        if method != entry.compress_type:
            raise PackageError(f"{shown(entry.filename)}: method differs from the entry's header; {_REPACK}")
        begin = start + 30 + name_length + extra_length
        end = begin + entry.compress_size
        if start < last or end > table:
            raise PackageError(f"{shown(entry.filename)}: shares bytes with another part, as zip bombs do; {_REPACK}")
        if start > last:
            raise PackageError(_BYTES_OUTSIDE)
        spans[start] = (begin, end)
        last = end + _descriptor_bytes(archive, entry, end)
    if last != table:
        raise PackageError(_BYTES_OUTSIDE)
    return spans


def _descriptor_bytes(archive: bytes, entry: zipfile.ZipInfo, place: int) -> int:
    """Return the length of an entry's data descriptor at a place: its signature is optional, and 0 means none."""
    if entry.flag_bits & _HAS_DESCRIPTOR:
        size = entry.file_size & 0xFFFFFFFF  # an entry can claim more in a 64-bit field; its content shows the truth
        numbers = struct.pack("<3L", entry.CRC, entry.compress_size, size)
        for descriptor in (b"PK\x07\x08" + numbers, numbers):
            if archive.startswith(descriptor, place):
                return len(descriptor)
    return 0


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
            # One byte above the limit is enough to detect a bomb.
            content = inflating.decompress(compressed, min(allowed, most) + 1)
        except zlib.error as error:
            raise PackageError(f"{shown(name)}: cannot be decompressed ({error}); {_REPACK}") from error
        whole = inflating.eof and not inflating.unused_data
    if len(content) > allowed:
        raise PackageError(
            f"{shown(name)}: more than {MAXIMUM_RATIO} times as large as when compressed, as in zip bombs; "
            "remove repeated content"
        )
    sizes.add(name, len(content))
    if not whole or len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
        reason = "size or checksum differ from the archive's table, so the file is damaged"
        raise PackageError(f"{shown(name)}: {reason}; {_REPACK}")
    return content


def _folder_around(files: Collection[str]) -> str:
    """Return the folder around a submission, with its slash, whose name may be any; empty if there is none."""
    top, *others = {path.split("/")[0] for path in files} or {""}
    return f"{top}/" if not others and f"{top}/submission.toml" in files else ""
