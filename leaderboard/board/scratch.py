"""The temporary folder of a worker. A worker that is killed leaves it, and the next worker removes it.

A worker makes its folder with a lock file and holds the lock. The kernel gives the lock back when the worker ends,
however it ends. A folder whose lock is free has no owner. All temporary files of a verification are in the folder.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "alma-worker-"
_LOCK = "owner.lock"
_NEW_SECONDS = 3600.0  # a folder without a lock file may be new
log = logging.getLogger(__name__)


class _Shared:
    """The folder of this process, which several threads can use at once."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.users = 0
        self.outer: tuple[str | None, str | None] = None, None
        self.folder = Path()
        self.lock = -1


_shared = _Shared()


@contextmanager
def folder_of_this_process() -> Iterator[Path]:
    """Let this process make its temporary files in a folder of its own, and remove the folder after the ``with``."""
    with _shared.guard:
        if _shared.users == 0:
            _enter()
        _shared.users += 1
    try:
        yield _shared.folder
    finally:
        with _shared.guard:
            _shared.users -= 1
            if _shared.users == 0:
                _leave()


def _enter() -> None:
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    # The lock is taken before the file has its name, so nobody finds the folder with a free lock.
    lock = os.open(folder / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(folder / "new", folder / _LOCK)
    folder.chmod(0o711)  # the sandbox's user reaches the folders in it, and cannot list them
    _shared.folder, _shared.lock = folder, lock
    _shared.outer = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)


def _leave() -> None:
    tempfile.tempdir, variable = _shared.outer
    if variable is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = variable
    shutil.rmtree(_shared.folder, ignore_errors=True)
    os.close(_shared.lock)


def remove_abandoned() -> None:
    """Remove the folders of workers that ended without removing them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if _is_abandoned(folder):
                shutil.rmtree(folder)
        except OSError as error:  # a file in it is still in use: the next call tries again
            log.warning("%s: not removed (%s)", folder, error)


def _is_abandoned(folder: Path) -> bool:
    # Other users can make folders and links of this name in a shared temporary folder.
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    try:
        with open(folder / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:  # its worker lives
        return False
    except FileNotFoundError:
        return time.time() - found.st_mtime > _NEW_SECONDS
