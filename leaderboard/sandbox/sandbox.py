"""Run submitted code in a process without network, without data sets and without a writable file system.

With bubblewrap the process is *isolated*: it has separate namespaces for network, processes, users, mounts and IPC. It
sees the interpreter, this project's packages and the given folders, all read-only, and a scratch folder in memory.
Without bubblewrap the process is only *limited* in memory, CPU time, files and processes. A caller must allow this
explicitly.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from alma_env.data.datasets import data_root
from alma_env.errors import AlmaError
from leaderboard.sandbox.cgroups import ControlGroup, control_group

ISOLATED, LIMITED = "isolated", "limited"
PACKAGES = ("alma_env", "agents", "leaderboard")
SCRATCH = "/scratch"
_PACKAGES_ROOT = Path(__file__).resolve().parents[2]


class SandboxError(AlmaError):
    """This machine cannot isolate a process, and the caller does not allow limits only."""


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
    """

    process: subprocess.Popen[bytes]
    level: str
    group: ControlGroup | None

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes so far; None if the kernel does not count it."""
        return None if self.group is None else self.group.cpu_seconds()

    def kill(self) -> None:
        """Kill the process and every process that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.kill()  # without a process namespace, a process in a new session survives killpg
        self.process.wait()


@cache
def level_here() -> str:
    """Return ``isolated`` if bubblewrap works for this user, else ``limited``."""
    if shutil.which("bwrap") is None:
        return LIMITED
    probe = [*_namespaces(), "--ro-bind", "/", "/", "--proc", "/proc", "--remount-ro", "/proc", "/bin/true"]
    return ISOLATED if subprocess.run(probe, capture_output=True, timeout=30, check=False).returncode == 0 else LIMITED


@cache
def _namespaces() -> tuple[str, ...]:
    """Return the command of bubblewrap with the options of its namespaces."""
    command = ("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    help_text = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=30, check=False).stdout
    # A process that creates a user namespace has capabilities inside it, and can attack more of the kernel. Bubblewrap
    # can forbid this since version 0.8.
    return (*command, "--unshare-user", "--disable-userns") if "--disable-userns" in help_text else command


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
        folders: path inside → folder outside; the process can read them.
        pass_fds: file descriptors that stay open.
        output: file descriptor for standard output and standard error.
        allow_limited: whether to run with limits only if isolation is not available.

    Raises:
        SandboxError: isolation is not available, and ``allow_limited`` is False.
    """
    level = level_here()
    if level != ISOLATED and not allow_limited:
        raise SandboxError(
            "no isolation on this machine: bubblewrap is missing or cannot create namespaces; install it (Debian: "
            "apt-get install bubblewrap), or allow limits only, which do not protect files and network from cheaters"
        )
    inside = {name: folder.resolve() for name, folder in (folders or {}).items()}
    command = [sys.executable, "-m", module, *arguments]
    with ExitStack() as stack:
        name = f"alma-{secrets.token_hex(8)}"
        group = stack.enter_context(control_group(name, memory=limits.memory, processes=limits.processes))
        if level == ISOLATED:
            isolation, environment, cwd = _bubblewrap(inside, limits), {"PATH": "/usr/bin:/bin"}, "/"
        else:
            cwd = stack.enter_context(TemporaryDirectory(prefix="alma-scratch-"))
            command = [str(inside[word]) if word in inside else word for word in command]
            isolation, environment = [], _environment(cwd, _PACKAGES_ROOT)
        if group is None:  # inside the user namespace, only the sandbox's processes count
            command = ["prlimit", f"--nproc={limits.processes}", "--", *command]
        process = subprocess.Popen(
            [*_limited(limits, group), *isolation, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        sandbox = Sandbox(process, level, group)
        stack.callback(sandbox.kill)
        yield sandbox


def _limited(limits: Limits, group: ControlGroup | None) -> list[str]:
    """Return the prefix of a command that first joins the group, and has limits of its own."""
    prlimit = ["prlimit", f"--fsize={limits.file}", f"--cpu={limits.cpu_seconds}", "--core=0", "--nofile=1024"]
    if group is None:
        return [*prlimit, f"--as={limits.memory}", "--"]
    joins = "; ".join(f'echo $$ > "{file}"' for file in group.procs)
    return ["/bin/sh", "-ec", f'{joins}; exec "$@"', "sh", *prlimit, "--"]


def _bubblewrap(folders: Mapping[str, Path], limits: Limits) -> list[str]:
    command = [*_namespaces(), "--clearenv", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    for path in ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin"):
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            command += ["--ro-bind", path, path]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    # If the worker is root, the sandbox's user owns the files of /proc/sys. Writing to them would change settings of
    # the kernel for the whole machine.
    command += ["--proc", "/proc", "--remount-ro", "/proc"]
    command += ["--dev", "/dev", "--size", str(limits.scratch), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    command += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    command += ["--size", str(2**24), "--tmpfs", "/tmp"]  # first, because the interpreter can be below /tmp
    for path in _interpreter():
        if not path.startswith("/usr/") and path != "/usr":
            command += ["--ro-bind", path, path]
    for name in PACKAGES:
        command += ["--ro-bind", str(_PACKAGES_ROOT / name), f"/program/{name}"]
    for folder in hidden_folders():
        command += ["--size", "4096", "--tmpfs", str(folder), "--remount-ro", str(folder)]
    for name, folder in folders.items():
        command += ["--ro-bind", str(folder), name]
    command += ["--size", str(limits.scratch), "--tmpfs", SCRATCH]
    command += ["--remount-ro", "/", "--chdir", SCRATCH]
    for name, value in _environment(SCRATCH, Path("/program")).items():
        command += ["--setenv", name, value]
    return [*command, "--"]


def hidden_folders() -> list[Path]:
    """Return the folders with data of the streams that would be visible in the sandbox; inside they are empty."""
    folders = [data_root().resolve()]
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).resolve().parent / "datasets" / "data")
    # A folder can have several names inside, because the interpreter can also be reached by a symbolic link.
    return [
        Path(place) / folder.relative_to(os.path.realpath(place))
        for folder in folders
        if folder.is_dir()
        for place in ("/usr", *_interpreter())
        if folder.is_relative_to(os.path.realpath(place))
    ]


def _interpreter() -> list[str]:
    """Return the folders of the interpreter and its packages, as given and with symbolic links resolved."""
    named = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    return sorted(named | {os.path.realpath(path) for path in named})


def _environment(scratch: str, packages: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": "nobody",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
