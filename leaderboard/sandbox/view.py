"""What a sandbox sees: the system, the interpreter, this project's packages and given folders, read-only.

Names inside tell nothing about the machine, the worker or the run. There is no proc file system: its files tell paths
of the host and what is cached, and some have counters that all processes of the machine change. In the commands of
this module, a word of type `Path` is a file or folder of the host, and a word of type `str` is an option or a name
inside.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from alma_env.data.datasets import DIGITS_FOLDER, data_root
from leaderboard.sandbox.interpreter import (
    STARTUP,
    Words,
    environment_words,
    executable,
    interpreter_folders,
    unused_packages,
    variables,
)

PACKAGES = ("alma_env", "agents", "leaderboard")
SCRATCH = "/scratch"
CACHE = f"{SCRATCH}/.cache/alma-env"  # of this project, below HOME
PACKAGES_ROOT = Path(__file__).resolve().parents[2]
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))  # of the host
_PROGRAM = "/program"


def visible_folders() -> dict[str, Path]:
    """Return the folders of the host that every sandbox sees: path inside → resolved path outside."""
    found = {path: Path(path) for path in _SYSTEM if os.path.isdir(path) and not os.path.islink(path)}
    found |= interpreter_folders()
    return found | {f"{_PROGRAM}/{name}": PACKAGES_ROOT / name for name in PACKAGES}


def hidden_folders() -> list[Path]:
    """Return the paths inside that are empty instead of `unused_folders`."""
    # A folder has several names inside if visible folders lie in each other.
    return [
        Path(inside) / folder.relative_to(outside)
        for folder in unused_folders()
        for inside, outside in visible_folders().items()
        if folder.is_relative_to(outside)
    ]


def unused_folders() -> list[Path]:
    """Return the folders of the host that no sandbox sees: data of the streams, and packages that are not used."""
    folders = [data_root().resolve(), DIGITS_FOLDER]
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).resolve().parent / "datasets" / "data")
    folders += unused_packages()
    return [folder for folder in folders if folder.is_dir()]


def view(folders: Mapping[str, Path], private: Path, scratch: int) -> Words:
    """Return the options of bubblewrap for files, folders and environment variables.

    Args:
        folders: path inside, which may lie in the scratch folder → folder outside; readable for the sandbox's user.
        private: an empty folder for files that only this sandbox has.
        scratch: bytes of the scratch folder.
    """
    words: Words = ["--size", str(2**24), "--tmpfs", "/tmp", "--dir", "/proc"]
    for path in _SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        words += ["--ro-bind", Path(file), file] if os.path.exists(file) else []
    words += ["--ro-bind", _write(private / "cpuinfo", _processors()), "/proc/cpuinfo"]
    words += ["--dev", "/dev", "--size", str(scratch), "--tmpfs", "/dev/shm", "--size", "4096", "--tmpfs", "/dev/pts"]
    words += ["--remount-ro", "/dev/pts", "--remount-ro", "/dev"]
    for name, folder in visible_folders().items():
        words += ["--ro-bind", folder, name]
    words += environment_words(private)
    words += ["--ro-bind", _write(private / "sitecustomize.py", STARTUP), f"{_PROGRAM}/sitecustomize.py"]
    for hidden in hidden_folders():
        words += ["--size", "4096", "--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    words += ["--size", str(scratch), "--tmpfs", SCRATCH]
    for name, folder in folders.items():  # some may lie in the scratch folder
        words += ["--ro-bind", folder, name]
    words += ["--remount-ro", "/", "--chdir", SCRATCH]
    path = f"{Path(executable()).parent}:/usr/bin:/bin"
    for name, value in (environment(SCRATCH, _PROGRAM, path) | variables()).items():
        words += ["--setenv", name, value]
    return words


def environment(scratch: str, packages: str, path: str) -> dict[str, str]:
    """Return the environment variables of a sandbox."""
    return {
        "PATH": path,
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": "nobody",
        "LANG": "C.UTF-8",
        "PYTHONPATH": packages,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def private_copies(folders: Mapping[str, Path], private: Path) -> dict[str, Path]:
    """Copy folders into a folder for one sandbox, readable for everyone; return the copies.

    Two sandboxes that shared files could tell each other something by which parts of them the kernel has cached.
    """
    copies = {}
    for number, (name, folder) in enumerate(folders.items()):
        copies[name] = private / f"folder{number}"
        shutil.copytree(folder, copies[name], symlinks=True)
        for path in (copies[name], *copies[name].rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
    return copies


def _processors() -> str:
    """Return the description of the processors, which libraries read to choose their code, without the frequencies."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines(keepends=True)
    except OSError:
        return ""
    return "".join(line for line in lines if not line.startswith("cpu MHz"))


def _write(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o644)
    return file
