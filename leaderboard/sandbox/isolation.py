"""How this machine isolates a process: bubblewrap, as which user of the host, and the command that starts it."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from leaderboard.sandbox import launch
from leaderboard.sandbox.interpreter import Words, executable
from leaderboard.sandbox.seccomp import filter_bytes
from leaderboard.sandbox.view import view

FIRST_DESCRIPTOR = launch.FIRST  # inside, passed descriptors are 3, 4, ...
# Ids of users that no system assigns (https://systemd.io/UIDS-GIDS), so that limits per user hold per sandbox; and the
# user nobody, for a container that has no other ids.
_OWN_USERS, _NOBODY = range(0x70000000, 0x78000000), range(65534, 65535)


@dataclass(frozen=True)
class Start:
    """How bubblewrap is started.

    Attributes:
        users: the sandbox's process becomes one of these users of the host; None for the user of this process.
        staged: whether the files that it sees are first mounted where every user can reach them.
    """

    users: range | None = None
    staged: bool = False


@dataclass(frozen=True)
class Isolation:
    """How bubblewrap works here; `start` is None if it does not, for this `reason`."""

    start: Start | None
    reason: str = ""


def isolation_here() -> Isolation:
    """Find out how bubblewrap works here. Warns if it must run as root.

    A machine without processes, memory or time for the probe is asked again at the next call.
    """
    try:
        return _find()
    except (OSError, subprocess.TimeoutExpired) as error:
        return Isolation(None, str(error))


@cache
def _find() -> Isolation:
    if shutil.which("bwrap") is None:
        return Isolation(None, "bwrap is not installed")
    try:
        filter_bytes(platform.machine())
    except KeyError:
        return Isolation(None, f"there is no filter of system calls for {platform.machine()}")
    reason = ""
    for start in _starts():
        failure = _probe(start)
        if failure is None:
            if os.geteuid() == 0 and start.users is None:
                text = f"sandboxes run as root of this machine, because another user cannot start them: {reason}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            return Isolation(start)
        reason = reason or failure
    return Isolation(None, reason)


def launcher(
    command: Words,
    start: Start | None = None,
    *,
    groups: Sequence[Path] = (),
    limits: Mapping[str, int] | None = None,
    descriptors: Sequence[int] = (),
) -> list[str]:
    """Return the words that start a command with `leaderboard.sandbox.launch`.

    Args:
        command: words; those of type `Path` are files of the host.
        start: which user it becomes.
        groups: files of control groups to join.
        limits: by name in the module `resource`.
        descriptors: open files, which become 3, 4, ...
    """
    start = start or Start()
    sources = [str(word) for word in command if isinstance(word, Path)] if start.staged else []
    staged = {source: f"{launch.STAGE}/{number}" for number, source in enumerate(sources)}
    plan = {
        "groups": [str(group) for group in groups],
        "descriptors": list(descriptors),
        "sources": sources,
        "user": None if start.users is None else start.users.start + secrets.randbelow(len(start.users)),
        "limits": dict(limits or {}),
        "command": [staged.get(str(word), str(word)) if isinstance(word, Path) else word for word in command],
    }
    return [sys.executable, "-I", "-S", launch.__file__, json.dumps(plan)]


def isolated(command: Sequence[str], seen: Words, *, filter: int, info: int) -> Words:
    """Return the words of bubblewrap for a command.

    Args:
        command: words inside.
        seen: options for files and variables, from `leaderboard.sandbox.view.view`.
        filter: descriptor of the filter of system calls.
        info: descriptor to which bubblewrap writes the id of the sandbox's first process.
    """
    identity = ["--clearenv", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    return [*namespaces(), *identity, "--seccomp", str(filter), "--info-fd", str(info), *seen, "--", *command]


@contextmanager
def filter_file() -> Iterator[int]:
    """Open a file in memory with the filter of system calls of this machine; yield its descriptor."""
    descriptor = os.memfd_create("filter")
    try:
        os.write(descriptor, filter_bytes(platform.machine()))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@cache
def namespaces() -> tuple[str, ...]:
    """Return the command of bubblewrap with the options of its namespaces."""
    command = ("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    help_text = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=30, check=False).stdout
    # A process that creates a user namespace has capabilities inside it, and can attack more of the kernel. Bubblewrap
    # can forbid this since version 0.8.
    return (*command, "--unshare-user", "--disable-userns") if "--disable-userns" in help_text else command


def _starts() -> Iterator[Start]:
    """Yield the ways to start bubblewrap, the best first."""
    if os.geteuid() == 0:
        for users in (_OWN_USERS, _NOBODY):
            if _is_mapped(users):
                yield Start(users, staged=True)
                yield Start(users)
                break
    yield Start()


def _is_mapped(users: range) -> bool:
    """Return whether these ids of users and groups exist in this process's user namespace."""
    return all(
        any(
            int(first) <= users.start and users.stop <= int(first) + int(count)
            for first, _, count in (line.split() for line in Path(f"/proc/self/{file}").read_text().splitlines())
        )
        for file in ("uid_map", "gid_map")
    )


def _probe(start: Start) -> str | None:
    """Try to read a file of this project in a sandbox; return the reason of a failure."""
    reads = [executable(), "-I", "-S", "-c", "open('/program/leaderboard/sandbox/sandbox_main.py')"]
    with TemporaryDirectory(prefix="alma-probe-") as private, filter_file() as filter, open(os.devnull, "wb") as info:
        os.chmod(private, 0o755)
        seen = view({}, Path(private), 2**20)
        command = isolated(reads, seen, filter=FIRST_DESCRIPTOR, info=FIRST_DESCRIPTOR + 1)
        descriptors = filter, info.fileno()
        words = launcher(command, start, descriptors=descriptors)
        environment = {"PATH": "/usr/bin:/bin"}
        tried = subprocess.run(words, capture_output=True, pass_fds=descriptors, env=environment, timeout=60)
    if tried.returncode == 0:
        return None
    lines = tried.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {tried.returncode}"]
    return lines[-1][:500]
