"""Files: locks, replacement of a file in one step, and digests."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock
import xxhash

from alma_env.errors import FileLockedError

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the exclusive lock of a lock file (``flock``, or its equal on Windows) in this block.

    The system releases the lock when the process ends, however it ends. The lock excludes other threads, too, and is
    not re-entrant. The file stays: if a process removed it, two processes could lock two files of the same name.

    The file is created if it is missing, and its content is not changed. `wait` waits until the lock is free.

    Yields:
        True; or False if the file system has no locks, as some network file systems. The block then runs without one.

    Raises:
        FileLockedError: the lock is taken, and `wait` is False.
    """
    lock = filelock.FileLock(file, thread_local=False, preserve_lock_file=True)
    try:
        lock.acquire(blocking=wait)
    except filelock.Timeout:
        raise FileLockedError(f"{file}: another process holds this lock; wait until it ends, or end it") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield lock.is_locked
    finally:
        lock.release()


@contextmanager
def replacing(file: Path, *, concurrent: bool = False) -> Iterator[Path]:
    """Replace or create a file in one step: a reader, and a process that is killed, sees the old file or the new one.

    The block gets the path to write to, which is renamed to `file` at the end. After an error `file` is unchanged, and
    the part that was written is removed. With `concurrent`, other processes may replace the file at the same time.

    Raises:
        OSError: the file cannot be written, for example because the disk is full; the error has the file's name.
    """
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial" if concurrent else f"{file.name}.partial")
    try:
        with naming(file):
            yield partial
            os.replace(partial, file)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of a file to an OSError of this block that has none: a write to a full disk does not know it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(file)
        raise


def replace_file(file: Path, content: str | bytes, *, concurrent: bool = False) -> None:
    """Replace the content of a file in one step; text is written in UTF-8."""
    with replacing(file, concurrent=concurrent) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def file_digest(file: Path) -> str:
    """Return xxh3_128 (hex) of the bytes of a file; it is read one block at a time."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
