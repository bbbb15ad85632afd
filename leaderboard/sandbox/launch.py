"""Prepare a process, and replace it by a command: ``python -I -S launch.py PLAN``, where PLAN is a JSON object.

`leaderboard.sandbox.sandbox` starts this file in place of bubblewrap or of the program. It stands alone, because it
runs before the sandbox exists, and imports nothing of this project. The members of the plan:

* ``groups``: files of control groups, to which the process writes its id.
* ``limits``: limits of the process by name in the module `resource`, such as ``{"RLIMIT_CPU": 60}``.
* ``descriptors``: open files, which become 3, 4, ... in this order. All other files are closed.
* ``sources``: files and folders that become ``/tmp/0``, ``/tmp/1``, ... for this process only; then ``user`` can mount
  them, also if they lie in folders that only root can enter. An empty list changes nothing.
* ``user``: id of the user and of the group to become; null for no change.
* ``command``: the words of the command.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import platform
import resource
import stat
import sys
from collections.abc import Sequence
from typing import Any

STAGE = "/tmp"  # exists on every machine
FIRST = 3  # descriptor of the command
_ABOVE = 64  # all descriptors of a plan
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def main(plan: dict[str, Any]) -> None:
    """Carry out a plan; does not return.

    Raises:
        OSError: a step failed.
    """
    for file in plan["groups"]:
        with open(file, "w") as group:
            group.write(str(os.getpid()))
    _join_new_keyring()
    _renumber(plan["descriptors"])
    if plan["sources"]:
        _stage(plan["sources"])
    if plan["user"] is not None:
        os.setgroups([])
        os.setresgid(plan["user"], plan["user"], plan["user"])
        os.setresuid(plan["user"], plan["user"], plan["user"])
    for name, value in plan["limits"].items():
        _, most = resource.getrlimit(getattr(resource, name))
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(getattr(resource, name), (value, value))
    os.execvp(plan["command"][0], plan["command"])


def _join_new_keyring() -> None:
    """Join a new session keyring of the kernel: otherwise the processes of all sandboxes share the worker's."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:  # the kernel can lack keyrings, and a container can refuse them
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None)


def _renumber(descriptors: Sequence[int]) -> None:
    """Give the open files the numbers 3, 4, ...: numbers of the worker would tell which run this is."""
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE) for descriptor in descriptors]
    for number, descriptor in enumerate(moved, FIRST):
        os.dup2(descriptor, number)
    os.closerange(FIRST + len(moved), 2**20)


def _stage(sources: Sequence[str]) -> None:
    _check(_libc.unshare(_NEW_MOUNTS), "unshare")
    _mount("none", "/", _RECURSIVE | _PRIVATE)  # nothing below is visible to other processes
    opened = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources]  # before the stage hides any of them
    _mount("alma", STAGE, 0, type="tmpfs", options="mode=755,size=1m")
    for number, descriptor in enumerate(opened):
        place = f"{STAGE}/{number}"
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(place, 0o755)
        else:
            open(place, "x").close()
        _mount(f"/proc/self/fd/{descriptor}", place, _BIND | _RECURSIVE)
        os.close(descriptor)


def _mount(source: str, target: str, flags: int, *, type: str = "", options: str = "") -> None:
    words = (source.encode(), target.encode(), type.encode() or None, ctypes.c_ulong(flags), options.encode() or None)
    _check(_libc.mount(*words), target)


def _check(result: int, name: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
