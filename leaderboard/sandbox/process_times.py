"""CPU time of a process and its descendants from /proc, for machines without control groups."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def tree_cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of a process and of its descendants; None if the process has ended.

    This is a lower bound: the time of a descendant that was reaped by a process outside of the tree is not in it.
    """
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name of the program stands in parentheses, and can have spaces and parentheses itself.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
                used[int(folder.name)] = sum(map(int, fields[11:15]))  # of the process and of its reaped children
    if pid not in used:
        return None
    tree = [pid]
    for process in tree:
        tree += children.get(process, [])
    return sum(used.get(process, 0) for process in tree) / os.sysconf("SC_CLK_TCK")
