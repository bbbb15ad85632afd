"""Reset what the kernel remembers of the files that all sandboxes share: no run can tell what an earlier run did.

The kernel keeps read files in memory. A run could read chosen parts of a large file that nothing else reads, and a
later run could find these parts by the time that reading takes. The kernel also remembers names that do not exist. A
run could look up chosen names, and a later run could find them by the time that the look-up takes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path

from leaderboard.sandbox.interpreter import shared_programs
from leaderboard.sandbox.view import DEVICES, unused_folders, visible_folders

FORGET = Path("/proc/sys/vm/drop_caches")
NAMES = "2"  # directory entries and inodes that nothing uses, of all file systems of the machine
SHARE_OF_MEMORY = 0.6  # more would push out what was read first


def reset_file_caches() -> None:
    """Let the kernel forget names of files, if this user may do so (root), and read all shared files.

    Afterwards every part of a shared file is in memory, and no name that does not exist is.
    """
    for device in DEVICES:
        with suppress(OSError):
            os.utime(device)  # everyone may set these times, so a run could have written some bits into them
    with suppress(OSError):
        FORGET.write_text(NAMES)
    read_shared_files()


def read_shared_files() -> None:
    """Read all files that every sandbox sees. Warn, and read only a part, if they do not fit into memory."""
    unused = {str(folder) for folder in unused_folders()}
    room = bytearray(2**20)
    left = SHARE_OF_MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = [_files(str(folder), unused) for folder in visible_folders().values()]
    for files in (*found, map(str, shared_programs())):
        for file in files:
            with suppress(OSError):  # another program can remove a file
                left -= _read(file, room)
            if left < 0:
                text = (
                    f"the files that all sandboxes see do not fit into {SHARE_OF_MEMORY:.0%} of the memory, so a run "
                    "can find out which of them an earlier run has read; use more memory, or one virtual machine per "
                    "run"
                )
                warnings.warn(text, RuntimeWarning, stacklevel=2)
                return


def _read(file: str, room: bytearray) -> int:
    """Read a file into `room`, part by part, and return its size in bytes."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    size = 0
    try:
        # The advice to read a file (POSIX_FADV_WILLNEED) reads only its beginning, and later.
        while part := os.readv(descriptor, [room]):
            size += part
    finally:
        os.close(descriptor)
    return size


def _files(folder: str, unused: Set[str]) -> Iterator[str]:
    """Yield the regular files below a folder, except for those below unused folders; links are not followed."""
    if folder in unused:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, unused)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path
