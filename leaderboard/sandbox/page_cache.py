"""Read the files that all sandboxes share into memory, so that no run can tell what an earlier run has read.

The kernel keeps read files in memory. A run could read chosen parts of a large file that nothing else reads, and a
later run could find these parts by the time that reading takes. Before a run, `read_shared_files` requests every part
of every shared file. Then all parts take the same time.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Set
from contextlib import suppress

from leaderboard.sandbox.view import unused_folders, visible_folders

SHARE_OF_MEMORY = 0.6  # more would push out what was read first


def read_shared_files() -> bool:
    """Read all files that every sandbox sees.

    Returns False, with a warning, if they do not fit into memory. Only a part was read then.
    """
    unused = {str(folder) for folder in unused_folders()}
    left = SHARE_OF_MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in visible_folders().values():
        for file in _files(str(folder), unused):
            with suppress(OSError):  # another program can remove a file
                left -= _read(file)
            if left < 0:
                text = (
                    f"the files that all sandboxes see do not fit into {SHARE_OF_MEMORY:.0%} of the memory, so a run "
                    "can find out which of them an earlier run has read; use more memory, or one virtual machine per "
                    "run"
                )
                warnings.warn(text, RuntimeWarning, stacklevel=2)
                return False
    return True


def _read(file: str) -> int:
    """Let the kernel read a file, and return its size in bytes; parts that are in memory cost almost nothing."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        if size:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        return size
    finally:
        os.close(descriptor)


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
