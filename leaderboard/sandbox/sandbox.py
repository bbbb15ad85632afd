"""Where code of strangers runs: a process without network, data, or a file system that it could write to.

With bubblewrap it has namespaces of its own for network, processes, users, mounts and IPC; it sees the interpreter,
this project's packages and what it is given, all read-only, and a scratch folder in memory. Where bubblewrap does not
work, only limits on memory, CPU time, files and processes are left: that is called `limited` and not `isolated`, and
nothing runs so unless it is asked for by name.
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

from alma_env.data import data_root
from alma_env.errors import AlmaError
from leaderboard.cgroups import ControlGroup, control_group

ISOLATED, LIMITED = "isolated", "limited"
PACKAGES = ("alma_env", "agents", "leaderboard")
SCRATCH = "/scratch"


class SandboxError(AlmaError):
    """No sandbox of the wanted strength can be made here."""


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use.

    Attributes:
        memory: bytes of all its processes together, scratch included.
        scratch: bytes of its scratch folder.
        file: bytes of one file that it writes.
        cpu_seconds: CPU time of each of its processes.
        wall_seconds: until it is killed.
        processes: processes and threads.
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
                raise ValueError(f"{name}={value}: a limit must be positive")


@dataclass(frozen=True)
class Sandbox:
    """A process in a sandbox.

    Attributes:
        process: the outermost one, which ends with all that it holds.
        level: ``isolated`` or ``limited``.
        group: its control group, if there is one.
    """

    process: subprocess.Popen[bytes]
    level: str
    group: ControlGroup | None

    def cpu_seconds(self) -> float | None:
        """CPU time of all its processes so far; None where nobody accounts for it."""
        return None if self.group is None else self.group.cpu_seconds()

    def kill(self) -> None:
        """End it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.kill()  # without a process namespace, what made itself a session of its own is still there
        self.process.wait()


@cache
def level_here() -> str:
    """``isolated`` if bubblewrap works for this user, else ``limited``."""
    if shutil.which("bwrap") is None:
        return LIMITED
    probe = [*_namespaces(), "--ro-bind", "/", "/", "--proc", "/proc", "--remount-ro", "/proc", "/bin/true"]
    return ISOLATED if subprocess.run(probe, capture_output=True, timeout=30, check=False).returncode == 0 else LIMITED


@cache
def _namespaces() -> tuple[str, ...]:
    """Bubblewrap, and the namespaces that it makes."""
    words = ("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    told = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=30, check=False).stdout
    # In a user namespace of its own a process would have capabilities, and with them more of the kernel to attack.
    # Bubblewrap can forbid that from 0.8 on.
    return (*words, "--unshare-user", "--disable-userns") if "--disable-userns" in told else words


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
    """Run ``python -m module arguments`` in a sandbox, which ends with this context.

    Args:
        module: of this project.
        arguments: its words.
        limits: what it may use.
        folders: path inside → folder outside, which it may read.
        pass_fds: file descriptors that stay open.
        output: descriptor that takes what it prints.
        allow_limited: whether limits alone will do where isolation is not to be had.

    Raises:
        SandboxError: this machine cannot isolate, and limits alone were not asked for.
    """
    level = level_here()
    if level != ISOLATED and not allow_limited:
        raise SandboxError(
            "no isolation on this machine: bubblewrap is missing or may not make namespaces; install it (Debian: "
            "apt-get install bubblewrap), or ask for limits alone, which do not keep a cheater from files and network"
        )
    inside = {name: folder.resolve() for name, folder in (folders or {}).items()}
    command = [sys.executable, "-m", module, *arguments]
    with ExitStack() as stack:
        group = stack.enter_context(
            control_group(f"alma-{secrets.token_hex(8)}", memory=limits.memory, processes=limits.processes)
        )
        if level == ISOLATED:
            words, environment, cwd = _bubblewrap(inside, limits), {}, "/"
        else:
            scratch = stack.enter_context(_temporary_folder())
            command = [str(inside[word]) if word in inside else word for word in command]
            words, environment, cwd = [], _environment(str(scratch), _packages_root()), str(scratch)
        process = subprocess.Popen(
            [*_joined_to(group), *_prlimit(limits, group), *words, *_few_processes(limits, group), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=pass_fds,
            env=environment or {"PATH": "/usr/bin:/bin"},
            cwd=cwd,
            start_new_session=True,
        )
        sandbox = Sandbox(process, level, group)
        stack.callback(sandbox.kill)
        yield sandbox


def _joined_to(group: ControlGroup | None) -> list[str]:
    """Words before a command that put it into the group first."""
    if group is None:
        return []
    joins = "; ".join(f'echo $$ > "{file}"' for file in group.procs)
    return ["/bin/sh", "-ec", f'{joins}; exec "$@"', "sh"]


def _prlimit(limits: Limits, group: ControlGroup | None) -> list[str]:
    words = ["prlimit", f"--fsize={limits.file}", f"--cpu={limits.cpu_seconds}", "--core=0", "--nofile=1024"]
    if group is None:
        words += [f"--as={limits.memory}"]
    return [*words, "--"]


def _few_processes(limits: Limits, group: ControlGroup | None) -> list[str]:
    """Words before the innermost command, whose processes a user namespace counts apart from the user's others."""
    return [] if group is not None else ["prlimit", f"--nproc={limits.processes}", "--"]


def _bubblewrap(folders: Mapping[str, Path], limits: Limits) -> list[str]:
    words = [*_namespaces(), "--clearenv", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    for path in ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin"):
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    words += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    # The files of /proc/sys belong to root, and under a worker that is root the sandbox's user is root to them: who
    # could write to them would set the kernel of the whole machine.
    words += ["--proc", "/proc", "--remount-ro", "/proc"]
    words += ["--dev", "/dev", "--size", str(limits.scratch), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    words += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    words += ["--size", str(2**24), "--tmpfs", "/tmp"]  # first: the interpreter may lie below it
    for path in _interpreter():
        if not path.startswith("/usr/") and path != "/usr":
            words += ["--ro-bind", path, path]
    for name in PACKAGES:
        words += ["--ro-bind", str(_packages_root() / name), f"/program/{name}"]
    for folder in hidden():
        words += ["--size", "4096", "--tmpfs", str(folder), "--remount-ro", str(folder)]
    for name, folder in folders.items():
        words += ["--ro-bind", str(folder), name]
    words += ["--size", str(limits.scratch), "--tmpfs", SCRATCH]
    words += ["--remount-ro", "/", "--chdir", SCRATCH]
    for name, value in _environment(SCRATCH, Path("/program")).items():
        words += ["--setenv", name, value]
    return [*words, "--"]


def hidden() -> list[Path]:
    """Folders within what the sandbox sees that hold data of the streams, and are empty inside."""
    folders = [data_root().resolve()]
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).resolve().parent / "datasets" / "data")
    # Each under every name that it has inside: the interpreter may be there by a symbolic link, too.
    return [
        Path(place) / folder.relative_to(os.path.realpath(place))
        for folder in folders
        if folder.is_dir()
        for place in ("/usr", *_interpreter())
        if folder.is_relative_to(os.path.realpath(place))
    ]


def _interpreter() -> list[str]:
    """Folders of the interpreter and its packages, as they are named and as they really are."""
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


def _packages_root() -> Path:
    return Path(__file__).resolve().parent.parent


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="alma-scratch-") as folder:
        yield Path(folder)
