"""The files of a submission, and the rules for their names and sizes.

A stranger chooses every byte of an archive. A package is therefore read into memory under limits, and each name and
size is checked before use. A `Package` holds regular files with portable names, whatever its source was. No library
that follows names or links ever unpacks an archive.
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
from leaderboard.text_safety import shown

MEBIBYTE = 2**20
MAXIMUM_FILES = 200
MAXIMUM_FILE_BYTES = 8 * MEBIBYTE
MAXIMUM_BYTES = 16 * MEBIBYTE  # of all files together
MAXIMUM_DEPTH = 8  # folders and the name of the file
MAXIMUM_PATH = 200  # characters
_COMPONENT = re.compile(r"[A-Za-z0-9._+=-]{1,100}", re.ASCII)
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # devices on Windows
_FORMAT = b"alma-submission 1\n"


@dataclass(frozen=True)
class Package:
    """The files of a submission, within all limits.

    Attributes:
        files: content by relative path with slashes, in the order of paths.
        left_out: paths of the source that do not belong to a submission: hidden files, compiled Python.

    Raises:
        PackageError: names or sizes break rules; the error lists all of them.
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
        """SHA-256 over paths and contents; independent of the archive format and of times."""
        digest = hashlib.sha256(_FORMAT)
        for path, content in self.files.items():
            for part in (path.encode(), content):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        return digest.hexdigest()

    def write(self, folder: Path) -> None:
        """Write the files into a new folder, or raise PackageError if the folder is not empty."""
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise PackageError(f"{folder}: must be empty; choose a new folder")
        for path, content in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / path, "xb") as file:
                file.write(content)

    def to_zip(self) -> bytes:
        """Return a zip archive. Equal files give equal bytes on every machine, because nothing is compressed."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for path, content in self.files.items():
                info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
                info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                archive.writestr(info, content)
        return buffer.getvalue()

    def __reduce__(self) -> tuple[type[Package], tuple[dict[str, bytes], tuple[str, ...]]]:
        # pickle cannot handle the mapping proxy, and workers send packages to other processes.
        return type(self), (dict(self.files), self.left_out)


def from_folder(folder: Path) -> Package:
    """Read the package in a folder, or raise PackageError if the folder breaks rules."""
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
            if is_left_out(entry.name):
                left_out.append(path)
            elif entry.is_symlink():
                raise PackageError(
                    f"{shown(path)}: a symbolic link, which can point outside the submission; replace it with the file"
                )
            elif entry.is_dir(follow_symlinks=False):
                if path.count("/") + 1 >= MAXIMUM_DEPTH:
                    raise PackageError(_too_deep(path))
                yield from _walk(entry.path, path + "/", left_out)
            elif entry.is_file(follow_symlinks=False):
                yield path, entry
            else:
                raise PackageError(f"{shown(path)}: a device, pipe or socket, not a file or folder; remove it")


def _read_file(entry: os.DirEntry[str], path: str, sizes: Sizes) -> bytes:
    # The kind was checked before. A link or pipe that has replaced the file since then is not followed.
    descriptor = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        content = file.read(MAXIMUM_FILE_BYTES + 1)
    sizes.add(path, len(content))
    return content


def is_left_out(name: str) -> bool:
    """Return whether a file or folder of this name is left out: hidden ones, by-products of Python and archivers."""
    hidden = name.startswith(".") and name not in (".", "..")
    return hidden or name in ("__pycache__", "__MACOSX") or name.endswith(".pyc")


@dataclass
class Sizes:
    """Sums sizes while files are read, so that reading stops at the limit."""

    total: int = 0

    def check_count(self, count: int) -> None:
        """Raise PackageError if there are more files than a submission can have."""
        if count > MAXIMUM_FILES:
            raise PackageError(
                f"{count} files or more: at most {MAXIMUM_FILES} are allowed; remove files that agent.py does not need"
            )

    def add(self, path: str, size: int) -> None:
        """Add the size of a file; raise PackageError above the limits."""
        if size > MAXIMUM_FILE_BYTES:
            raise PackageError(
                f"{shown(path)}: larger than {MAXIMUM_FILE_BYTES // MEBIBYTE} MiB, the maximum of a file; reduce it; "
                "trained weights do not belong in a submission"
            )
        self.total += size
        if self.total > MAXIMUM_BYTES:
            raise PackageError(
                f"{shown(path)}: with this file the submission is larger than {MAXIMUM_BYTES // MEBIBYTE} MiB, the "
                "maximum; remove files that agent.py does not need"
            )


def require_names(paths: Iterable[str]) -> None:
    """Check that paths are portable and every system can distinguish them; a PackageError lists all problems."""
    problems: list[str] = []
    seen: dict[str, str] = {}  # by lower-case path, as on a system that ignores case
    paths = list(paths)
    Sizes().check_count(len(paths))
    for path in paths:
        problem = _name_problem(path)
        if problem is not None:
            problems.append(problem)
            continue
        same = seen.setdefault(path.lower(), path)
        if same != path:
            problems.append(f"{shown(path)}: differs from {shown(same)} only in case; rename one")
    for path in seen:
        for parent in PurePosixPath(path).parents:
            if str(parent) in seen:
                problems.append(f"{shown(seen[path])}: {shown(seen[str(parent)])} is a file and a folder; rename one")
    folders: dict[str, str] = {}
    for path in seen.values():
        for folder in map(str, PurePosixPath(path).parents):
            same = folders.setdefault(folder.lower(), folder)
            if same != folder:
                problems.append(f"{shown(path)}: its folder differs from {shown(same)} only in case; rename one")
    if problems:
        raise PackageError(problems)


def outside_problem(path: str) -> str | None:
    """Return a description of what lets a path point outside of the folder that it is relative to, or None."""
    if "\\" in path or re.match("[A-Za-z]:", path):
        return f"{shown(path)}: a path has no backslash or drive; write a relative path with slashes"
    if path.startswith("/"):
        return f"{shown(path)}: an absolute path is outside the submission; make it relative"
    if ".." in path.split("/"):
        return f"{shown(path)}: '..' points outside the submission; remove it"
    return None


def _name_problem(path: str) -> str | None:
    if not isinstance(path, str) or not path:
        return f"{shown(path)}: a name must have at least one character; rename it"
    if len(path) > MAXIMUM_PATH:
        return f"{shown(path)}: {len(path)} characters: a path has at most {MAXIMUM_PATH}; shorten it"
    if (problem := outside_problem(path)) is not None:
        return problem
    components = path.split("/")
    if len(components) > MAXIMUM_DEPTH:
        return _too_deep(path)
    for component in components:
        if not _COMPONENT.fullmatch(component) or component == "." or component.endswith(".") or component[0] == "-":
            return (
                f"{shown(path)}: {shown(component)} is not a portable name; use up to 100 of A-Z, a-z, 0-9 and "
                ". _ + = -, no dot at the end, no dash at the beginning"
            )
        if _RESERVED.fullmatch(component):
            return f"{shown(path)}: {shown(component)} is the name of a device on some systems; rename it"
    return None


def _too_deep(path: str) -> str:
    return f"{shown(path)}: more than {MAXIMUM_DEPTH} levels deep; move it up"
