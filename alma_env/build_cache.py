"""A cache of folders that are built once: a folder is complete or missing, also if the building process is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from alma_env.errors import FileLockedError
from alma_env.files import locked


def built(
    cache: Path, key: str, build: Callable[[Path], None], is_intact: Callable[[Path], bool] = Path.is_dir
) -> Path:
    """Return the folder cache/key; if it is missing, `build` fills a scratch folder, which is then renamed.

    Processes and threads that request the same key at the same time wait for the first of them. The next build of any
    key removes the scratch folders of killed processes. Without file locks, as on some network file systems, every
    process builds the folder, the first one to finish wins, and scratch folders of killed processes stay. A folder that
    is not intact is built again.
    """
    folder = cache / key
    if is_intact(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{key}.lock", wait=True) as held:
        if held:
            _remove_abandoned(cache, key)
        if is_intact(folder):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        scratch = cache / f"{key}.building-{uuid.uuid4().hex}"  # not by mkdtemp, whose folders only one user can read
        scratch.mkdir()
        try:
            build(scratch)
            try:
                os.rename(scratch, folder)
            except OSError:
                if not is_intact(folder):  # otherwise another process, without locks, finished first
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _remove_abandoned(cache: Path, key: str) -> None:
    """Remove the scratch folders that no living process fills; the caller holds the lock of `key`."""
    for scratch in cache.glob("*.building-*"):
        other = scratch.name.partition(".")[0]
        if other == key:
            shutil.rmtree(scratch, ignore_errors=True)
            continue
        with contextlib.suppress(FileLockedError), locked(cache / f"{other}.lock", wait=False) as held:
            if held:
                shutil.rmtree(scratch, ignore_errors=True)
