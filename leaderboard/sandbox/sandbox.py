"""Run submitted code in a process without network, without data sets and without a writable file system.

With bubblewrap the process is *isolated*: it has separate namespaces for network, processes, users, mounts and IPC, a
session keyring of its own, and a filter of system calls (`leaderboard.sandbox.system_calls`). It sees the interpreter,
this project's packages and copies of the given folders, all read-only, and a scratch folder in memory. Also where the
worker is root, the process belongs to another user of the host. Without bubblewrap the process is only *limited* in
memory, CPU time, files and processes. A caller must allow this explicitly.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from alma_env.errors import AlmaError
from leaderboard.sandbox.cgroups import ControlGroup, control_group
from leaderboard.sandbox.isolation import FIRST_DESCRIPTOR, filter_file, isolated, isolation_here, launcher
from leaderboard.sandbox.view import PACKAGES_ROOT, Words, environment, executable, private_copies, view

ISOLATED, LIMITED = "isolated", "limited"
KILL_SECONDS = 60.0  # the kernel ends a killed process within seconds, unless a device does not respond


class SandboxError(AlmaError):
    """This machine cannot isolate a process, and the caller does not allow limits only; or a process does not end."""


@dataclass(frozen=True)
class Limits:
    """The resources of a sandbox.

    Attributes:
        memory: bytes of all processes together, including scratch.
        scratch: bytes of the scratch folder.
        file: bytes of one written file.
        cpu_seconds: CPU time of each process.
        wall_seconds: time until the sandbox is killed.
        processes: number of processes and threads.
    """

    memory: int = 8 * 2**30
    scratch: int = 2**30
    file: int = 2**30
    cpu_seconds: int = 6 * 3600
    wall_seconds: float = 6 * 3600
    processes: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name}={value}: must be positive; use a larger limit")


@dataclass(frozen=True)
class Sandbox:
    """A process in a sandbox.

    Attributes:
        process: the outermost process; when it ends, all processes in the sandbox end.
        level: ``isolated`` or ``limited``.
        group: the control group, None if this user cannot create one.
        first: descriptor (pidfd) of process 1 of the sandbox; the kernel ends it after all other processes of the
            sandbox. None without isolation.
    """

    process: subprocess.Popen[bytes]
    level: str
    group: ControlGroup | None
    first: int | None = None

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes so far; None if the kernel does not count it."""
        return None if self.group is None else self.group.cpu_seconds()

    def kill(self) -> None:
        """Kill the process and every process that it started, and wait until they have ended.

        Raises:
            SandboxError: a process does not end.
        """
        if self.first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.kill()  # without a process namespace, a process in a new session survives killpg
        if self.first is not None:
            ended = select.poll()
            ended.register(self.first, select.POLLIN)
            if not ended.poll(1000 * KILL_SECONDS):
                text = f"processes of a sandbox did not end {KILL_SECONDS:.0f} s after SIGKILL; restart the machine"
                raise SandboxError(text)
        self.process.wait()


def level_here() -> str:
    """Return ``isolated`` if bubblewrap works for this user, else ``limited``."""
    return LIMITED if isolation_here().start is None else ISOLATED


@contextmanager
def sandboxed(
    module: str,
    arguments: Sequence[str],
    limits: Limits,
    *,
    folders: Mapping[str, Path] | None = None,
    pass_fds: Sequence[int] = (),
    output: int,
    allow_limited: bool = False,
) -> Iterator[Sandbox]:
    """Run ``python -m module arguments`` in a sandbox, which is killed at the end of the context.

    Args:
        module: a module of this project.
        arguments: command-line arguments.
        limits: of the sandbox.
        folders: path inside → folder outside; the process can read a copy.
        pass_fds: file descriptors that stay open. Inside they are `FIRST_DESCRIPTOR` and the following numbers.
        output: file descriptor for standard output and standard error.
        allow_limited: whether to run with limits only if isolation is not available.

    Raises:
        SandboxError: isolation is not available, and ``allow_limited`` is False.
    """
    level = level_here()
    if level != ISOLATED and not allow_limited:
        raise SandboxError(
            "no isolation on this machine: bubblewrap is missing or cannot create namespaces; install it (Debian: "
            "apt-get install bubblewrap), or allow limits only, which do not protect files and network from cheaters "
            f"({isolation_here().reason})"
        )
    with ExitStack() as stack:
        name = f"alma-{secrets.token_hex(8)}"
        group = stack.enter_context(control_group(name, memory=limits.memory, processes=limits.processes))
        private = Path(stack.enter_context(TemporaryDirectory(prefix="alma-private-")))
        private.chmod(0o755)
        copies = private_copies(folders or {}, private)
        # Inside the user namespace, only the sandbox's processes count.
        counted = ["prlimit", f"--nproc={limits.processes}", "--"] if group is None else []
        reading, writing = os.pipe()
        stack.callback(os.close, reading)
        with open(writing, "wb") as info, filter_file() as filter:
            descriptors = list(pass_fds)
            command: Words
            if level == ISOLATED:
                last = FIRST_DESCRIPTOR + len(pass_fds)
                descriptors += [filter, info.fileno()]
                words = [*counted, executable(), "-m", module, *arguments]
                command = isolated(words, view(copies, private, limits.scratch), filter=last, info=last + 1)
                start, variables, cwd = isolation_here().start, {"PATH": "/usr/bin:/bin"}, "/"
            else:
                words = [str(copies.get(word, word)) for word in arguments]
                command = [*counted, sys.executable, "-m", module, *words]
                start, cwd = None, stack.enter_context(TemporaryDirectory(prefix="alma-scratch-"))
                variables = environment(cwd, str(PACKAGES_ROOT), f"{Path(sys.executable).parent}:/usr/bin:/bin")
            groups = () if group is None else group.procs
            process = subprocess.Popen(
                launcher(command, start, groups=groups, limits=_rlimits(limits, group), descriptors=descriptors),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
                env=variables,
                cwd=cwd,
                start_new_session=True,
            )
        stack.callback(Sandbox(process, level, group).kill)
        first = _first_process(reading)
        if first is not None:
            stack.callback(os.close, first)
        sandbox = Sandbox(process, level, group, first)
        stack.callback(sandbox.kill)
        yield sandbox


def _rlimits(limits: Limits, group: ControlGroup | None) -> dict[str, int]:
    """Return the limits per process. Without a control group, each process has the limit of memory."""
    each = {"RLIMIT_FSIZE": limits.file, "RLIMIT_CPU": limits.cpu_seconds, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 1024}
    return each if group is not None else each | {"RLIMIT_AS": limits.memory}


def _first_process(reading: int) -> int | None:
    """Return a descriptor (pidfd) of the process that bubblewrap reports; None if it started none."""
    report = b""
    while not report.rstrip().endswith(b"}"):
        part = os.read(reading, 4096)
        if not part:
            return None
        report += part
    with suppress(ProcessLookupError):
        return os.pidfd_open(json.loads(report)["child-pid"])
    return None
