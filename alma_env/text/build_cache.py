"""Folders that are built once: whole or not there at all, whoever builds and whoever is killed."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def built(cache: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The folder cache/key; where it is missing, `build` fills a scratch folder, which is then renamed.

    Processes (and threads) that want the same key at once wait for the first of them. What killed builds have left
    behind, of any key, is removed by the next build. Without file locks (Windows, some network file systems) each
    process builds for itself, the first to end wins, and left-overs stay.
    """
    folder = cache / key
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{key}.lock", wait=True) as held:
        if held:
            _sweep(cache, key)
        if folder.is_dir():
            return folder
        scratch = cache / f"{key}.building-{uuid.uuid4().hex}"  # not by mkdtemp: its folders cannot be shared
        scratch.mkdir()
        try:
            build(scratch)
            try:
                os.rename(scratch, folder)
            except OSError:
                if not folder.is_dir():  # else another process, without locks, was faster
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _sweep(cache: Path, key: str) -> None:
    """Remove the scratch folders that no living process fills; the lock of `key` is held by the caller."""
    for left in cache.glob("*.building-*"):
        other = left.name.partition(".")[0]
        if other == key:
            shutil.rmtree(left, ignore_errors=True)
            continue
        with _locked(cache / f"{other}.lock", wait=False) as free:
            if free:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(file: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a key; False when it is not held: taken (and `wait` is False), or not to be had here.

    The file stays: if it were removed, two processes could hold locks on two files of its name.
    """
    if sys.platform == "win32":
        yield False
        return
    with file.open("a") as lock:
        held = True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if not isinstance(error, BlockingIOError) and error.errno not in (
                errno.ENOLCK,
                errno.ENOTSUP,
                errno.ENOSYS,
            ):
                raise
            held = False
        yield held
