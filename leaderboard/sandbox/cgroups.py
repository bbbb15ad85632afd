"""Limits on a whole tree of processes, by the kernel's control groups, where this user may make some.

Limits per process (`setrlimit`) do not add up over children, and bind root hardly at all; a control group does both.
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
STALE_SECONDS = 3600.0  # an empty group of this age is left over from a worker that was killed


@dataclass(frozen=True)
class ControlGroup:
    """A group that processes can be put into.

    Attributes:
        folders: the group's folder in each hierarchy; version 2 has one hierarchy, version 1 one per controller.
    """

    folders: tuple[Path, ...]

    @property
    def procs(self) -> list[Path]:
        """Files to which a process writes its number to join."""
        return [folder / "cgroup.procs" for folder in self.folders]

    def cpu_seconds(self) -> float | None:
        """CPU time of all its processes so far, those that ended included; None where it is not accounted."""
        for folder in self.folders:
            if (folder / "cpuacct.usage").exists():
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            if (folder / "cpu.stat").exists():
                words = (folder / "cpu.stat").read_text().split()
                return int(words[words.index("usage_usec") + 1]) / 1e6 if "usage_usec" in words else None
        return None

    def memory_peak(self) -> int | None:
        """Most bytes that it held; None where it is not accounted."""
        for folder in self.folders:
            for name in ("memory.max_usage_in_bytes", "memory.peak"):
                if (folder / name).exists():
                    return int((folder / name).read_text())
        return None

    def kill(self) -> None:
        """End all its processes."""
        for _ in range(50):  # they may fork while they are counted
            numbers = self.procs[0].read_text().split()
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            if not numbers:
                return
            time.sleep(0.02)


@contextmanager
def control_group(name: str, *, memory: int, processes: int) -> Iterator[ControlGroup | None]:
    """A new group with these limits, removed at the end; None where this user may not make one that holds both.

    Args:
        name: of its folder.
        memory: bytes.
        processes: processes and threads.
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
        _sweep(folder.parent)
    made: list[Path] = []
    try:
        for folder, limits in plans.items():
            folder.mkdir()
            made.append(folder)
            for file, value in limits.items():
                if file == "memory.swap.max" and not (folder / file).exists():
                    continue  # a kernel without accounting of swap
                with os.fdopen(os.open(folder / file, os.O_WRONLY), "w") as handle:  # never creates it
                    handle.write(str(value))
    except OSError:
        _remove(tuple(made))
        return None
    return ControlGroup(tuple(made))


def _sweep(parent: Path) -> None:
    """Remove groups that nobody is left to remove; the kernel refuses where processes are in them."""
    for folder in parent.glob("alma-*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > STALE_SECONDS:
                folder.rmdir()


def _remove(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        for _ in range(50):  # the kernel takes a moment to reap what was killed
            try:
                folder.rmdir()
                break
            except OSError:
                if not folder.exists():
                    break
                time.sleep(0.02)
