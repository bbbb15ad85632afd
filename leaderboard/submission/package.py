"""The files of a submission: from a folder or an archive, and what of them is refused.

Whoever sends an archive chooses every byte of it. So a package is first read into memory under limits, each name and
size checked, and only then used: what a `Package` holds is plain files with plain names, whatever it came from. Nothing
is ever unpacked by a library that follows names or links.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from leaderboard.errors import PackageError
from leaderboard.text_rules import shown

MEBIBYTE = 2**20
MAXIMUM_FILES = 200
MAXIMUM_FILE_BYTES = 8 * MEBIBYTE
MAXIMUM_BYTES = 16 * MEBIBYTE  # of all files together
MAXIMUM_DEPTH = 8  # folders and the file's own name
MAXIMUM_PATH = 200  # characters
_COMPONENT = re.compile(r"[A-Za-z0-9._+=-]{1,100}", re.ASCII)
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # devices, on Windows
_FORMAT = b"alma-submission 1\n"


@dataclass(frozen=True)
class Package:
    """The files of a submission, within all limits.

    Attributes:
        files: content by relative path with slashes, in the order of paths.
        left_out: what was there and does not belong to a submission: hidden files, compiled Python.

    Raises:
        PackageError: a name or a size breaks a rule; all that were found are told.
    """

    files: Mapping[str, bytes]
    left_out: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        require_names(self.files)
        sizes = Sizes()
        for path, content in self.files.items():
            sizes.add(path, len(content))
        object.__setattr__(self, "files", MappingProxyType({path: self.files[path] for path in sorted(self.files)}))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over paths and contents: the same however and whenever they were packed."""
        digest = hashlib.sha256(_FORMAT)
        for path, content in self.files.items():
            for part in (path.encode(), content):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        return digest.hexdigest()

    def write(self, folder: Path) -> None:
        """Write the files into a new folder.

        Raises:
            PackageError: there is something in the folder already.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise PackageError(f"{folder}: not empty, and files there could be mixed up; choose a new folder")
        for path, content in self.files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "xb") as opened:
                opened.write(content)

    def to_zip(self) -> bytes:
        """An archive of the files: the same bytes for the same files, on every machine, so nothing is compressed."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for path, content in self.files.items():
                info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
                info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                archive.writestr(info, content)
        return buffer.getvalue()

    # The mapping of files is a view, which pickle does not know; workers hand packages to other processes.
    def __getstate__(self) -> dict[str, object]:
        return {"files": dict(self.files), "left_out": self.left_out}

    def __setstate__(self, state: dict[str, object]) -> None:
        object.__setattr__(self, "left_out", state["left_out"])
        object.__setattr__(self, "files", MappingProxyType(state["files"]))  # type: ignore[arg-type]


def read(path: Path) -> Package:
    """The package in a folder, or in a zip archive.

    Raises:
        PackageError: it breaks rules.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return from_folder(path)
    if not path.is_file():
        raise PackageError(f"{path}: neither a folder nor a file; give a folder with agent.py, or a zip of it")
    from leaderboard.archive import MAXIMUM_ARCHIVE_BYTES, from_zip  # which builds on this module

    with open(path, "rb") as file:
        return from_zip(file.read(MAXIMUM_ARCHIVE_BYTES + 1))


def from_folder(folder: Path) -> Package:
    """The package in a folder.

    Raises:
        PackageError: it breaks rules.
        OSError: it cannot be read.
    """
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    sizes = Sizes()
    for path, entry in _walk(folder, "", left_out):
        sizes.check_count(len(files) + 1)
        files[path] = _read_file(entry, path, sizes)
    return Package(files, tuple(left_out))


def _walk(folder: Path | str, prefix: str, left_out: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = prefix + entry.name
            if belongs_elsewhere(entry.name):
                left_out.append(path)
            elif entry.is_symlink():
                raise PackageError(
                    f"{shown(path)}: a symbolic link, which could lead out of the submission; put the file itself there"
                )
            elif entry.is_dir(follow_symlinks=False):
                if path.count("/") + 1 >= MAXIMUM_DEPTH:
                    raise PackageError(_too_deep(path))
                yield from _walk(entry.path, path + "/", left_out)
            elif entry.is_file(follow_symlinks=False):
                yield path, entry
            else:
                raise PackageError(f"{shown(path)}: a device, pipe or socket; a submission is files and folders only")


def _read_file(entry: os.DirEntry[str], path: str, sizes: Sizes) -> bytes:
    # The kind was looked at before; a link or pipe that took the file's place since then is not followed.
    descriptor = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        content = file.read(MAXIMUM_FILE_BYTES + 1)
    sizes.add(path, len(content))
    return content


def belongs_elsewhere(name: str) -> bool:
    """Whether a file or folder of this name is left out: hidden ones, and what Python or an archiver leaves behind."""
    hidden = name.startswith(".") and name not in (".", "..")
    return hidden or name in ("__pycache__", "__MACOSX") or name.endswith(".pyc")


@dataclass
class Sizes:
    """Adds up sizes as files are read, so that reading stops at the limit and not after it."""

    total: int = 0

    def check_count(self, count: int) -> None:
        """Refuse more files than a submission may have."""
        if count > MAXIMUM_FILES:
            raise PackageError(
                f"{count} files or more: at most {MAXIMUM_FILES} are taken; leave out what agent.py does not need"
            )

    def add(self, path: str, size: int) -> None:
        """Count a file."""
        if size > MAXIMUM_FILE_BYTES:
            raise PackageError(
                f"{shown(path)}: larger than {MAXIMUM_FILE_BYTES // MEBIBYTE} MiB, the most that a file may have; "
                "what an agent learned before the stream began does not belong into a submission"
            )
        self.total += size
        if self.total > MAXIMUM_BYTES:
            raise PackageError(
                f"{shown(path)}: with it the files are larger than {MAXIMUM_BYTES // MEBIBYTE} MiB together, the most "
                "that a submission may have; leave out what agent.py does not need"
            )


def require_names(paths: Iterable[str]) -> None:
    """Refuse names that are not plain, the same on every system, and apart from each other.

    Raises:
        PackageError: names break rules; all that were found are told.
    """
    problems: list[str] = []
    seen: dict[str, str] = {}  # by how a system sees it that does not tell cases apart
    paths = list(paths)
    Sizes().check_count(len(paths))
    for path in paths:
        problem = _name_problem(path)
        if problem is not None:
            problems.append(problem)
            continue
        same = seen.setdefault(path.lower(), path)
        if same != path:
            problems.append(f"{shown(path)}: differs from {shown(same)} in case alone; rename one of them")
    for path in seen:
        for parent in PurePosixPath(path).parents:
            if str(parent) in seen:
                problems.append(f"{shown(seen[path])}: {shown(seen[str(parent)])} is a file and a folder; rename one")
    problems += _folders_in_two_cases(seen.values())
    if problems:
        raise PackageError(problems)


def _folders_in_two_cases(paths: Iterable[str]) -> list[str]:
    seen: dict[str, str] = {}
    problems = []
    for path in paths:
        for parent in PurePosixPath(path).parents:
            same = seen.setdefault(str(parent).lower(), str(parent))
            if same != str(parent):
                problems.append(
                    f"{shown(path)}: its folder differs from {shown(same)} in case alone; rename one of them"
                )
    return problems


def _name_problem(path: str) -> str | None:
    if not isinstance(path, str) or not path:
        return f"{shown(path)}: not a name; a file's name has at least one character"
    if len(path) > MAXIMUM_PATH:
        return f"{shown(path)}: {len(path)} characters, and a path has at most {MAXIMUM_PATH}; shorten it"
    if "\\" in path or re.match("[A-Za-z]:", path):
        return f"{shown(path)}: a backslash or a drive; paths are relative, with slashes"
    if path.startswith("/"):
        return f"{shown(path)}: absolute, and would lie outside the submission; make it relative"
    components = path.split("/")
    if ".." in components:
        return f"{shown(path)}: '..' leads out of the submission; take it out"
    if len(components) > MAXIMUM_DEPTH:
        return _too_deep(path)
    for component in components:
        if not _COMPONENT.fullmatch(component) or component == "." or component.endswith(".") or component[0] == "-":
            return (
                f"{shown(path)}: {shown(component)} is no plain name; use up to 100 of A-Z, a-z, 0-9 and . _ + = -, "
                "without a dot at the end or a dash at the beginning"
            )
        if _RESERVED.fullmatch(component):
            return f"{shown(path)}: {shown(component)} is a device on some systems; rename it"
    return None


def _too_deep(path: str) -> str:
    return f"{shown(path)}: deeper than {MAXIMUM_DEPTH} names; put it further up"
