"""Limit a whole tree of processes with the kernel's control groups, if this user can create them.

A control group limits the sum over all processes, also for root. Limits per process (`setrlimit`) are not summed over
children, and most do not apply to root.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
STALE_SECONDS = 3600.0  # an empty group of this age belongs to a killed worker


@dataclass(frozen=True)
class ControlGroup:
    """A control group: its folder in each hierarchy. Version 2 has one hierarchy, version 1 one per controller."""

    folders: tuple[Path, ...]

    @property
    def procs(self) -> list[Path]:
        """Files to which a process writes its id to join the group."""
        return [folder / "cgroup.procs" for folder in self.folders]

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes so far, including ended ones; None if the kernel does not count it."""
        for folder in self.folders:
            if (folder / "cpuacct.usage").exists():
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            if (folder / "cpu.stat").exists():
                words = (folder / "cpu.stat").read_text().split()
                return int(words[words.index("usage_usec") + 1]) / 1e6 if "usage_usec" in words else None
        return None

    def memory_peak(self) -> int | None:
        """Return the peak memory in bytes; None if the kernel does not count it."""
        for folder in self.folders:
            for name in ("memory.max_usage_in_bytes", "memory.peak"):
                if (folder / name).exists():
                    return int((folder / name).read_text())
        return None

    def kill(self) -> None:
        """Kill all processes of the group."""
        for _ in range(50):  # processes can fork between the read and the kill
            ids = self.procs[0].read_text().split()
            for id in ids:
                with suppress(ProcessLookupError):
                    os.kill(int(id), signal.SIGKILL)
            if not ids:
                return
            time.sleep(0.02)


@contextmanager
def control_group(name: str, *, memory: int, processes: int) -> Iterator[ControlGroup | None]:
    """Create a group, and remove it at the end; None if this user cannot create a group with both limits.

    ``memory`` is a limit in bytes, ``processes`` a limit of processes and threads.
    """
    group = _make(name, memory, processes)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group.folders)


def _make(name: str, memory: int, processes: int) -> ControlGroup | None:
    if (ROOT / "cgroup.controllers").exists():
        plans = {ROOT / name: {"memory.max": memory, "memory.swap.max": 0, "pids.max": processes}}
    else:
        plans = {
            ROOT / "memory" / name: {"memory.limit_in_bytes": memory},
            ROOT / "pids" / name: {"pids.max": processes},
            ROOT / "cpuacct" / name: {},
        }
    for folder in plans:
        _remove_stale(folder.parent)
    created: list[Path] = []
    try:
        for folder, limits in plans.items():
            folder.mkdir()
            created.append(folder)
            for file, value in limits.items():
                if file == "memory.swap.max" and not (folder / file).exists():
                    continue  # a kernel that does not count swap
                with os.fdopen(os.open(folder / file, os.O_WRONLY), "w") as handle:  # never creates the file
                    handle.write(str(value))
    except OSError:
        _remove(tuple(created))
        return None
    return ControlGroup(tuple(created))


def _remove_stale(parent: Path) -> None:
    """Remove groups of killed workers; the kernel refuses to remove a group that has processes."""
    for folder in parent.glob("alma-*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > STALE_SECONDS:
                folder.rmdir()


def _remove(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        for _ in range(250):  # the kernel needs up to seconds to reap killed processes
            try:
                folder.rmdir()
                break
            except OSError:
                if not folder.exists():
                    break
                time.sleep(0.02)
