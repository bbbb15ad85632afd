"""The interpreter and its packages under neutral names inside a sandbox: ``/python`` and ``/environment``.

``/environment`` stands for a virtual environment. An interpreter below ``/usr`` keeps its name.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

PYTHON, ENVIRONMENT = "/python", "/environment"
# Python runs this file at its start. The sandbox has no locks of files (flock), because a lock on a file that sandboxes
# share tells other sandboxes something. The library filelock uses lock files then, but subclasses of its locks, such as
# that of torch.compile, fail when it finds out at the first lock. A lock file cannot be preserved after its release.
STARTUP = """\
try:
    import filelock
except ImportError:
    pass
else:

    class Kind(type(filelock.SoftFileLock)):
        def __call__(cls, *arguments, preserve_lock_file=False, **settings):
            return super().__call__(*arguments, **settings)

    class FileLock(filelock.SoftFileLock, metaclass=Kind):
        pass

    filelock.FileLock = filelock.UnixFileLock = FileLock
"""
Words = list[str | Path]


def executable() -> str:
    """Return the interpreter's path inside."""
    return f"{ENVIRONMENT}/bin/python" if is_virtual() else _inside(_program())


def interpreter_folders() -> dict[str, Path]:
    """Return path inside → resolved folder of the host, for the folders that are not below ``/usr``."""
    found = {} if _is_system(_base()) else {PYTHON: _base()}
    return found | ({f"{ENVIRONMENT}/lib": _prefix() / "lib"} if is_virtual() else {})


def unused_packages() -> list[Path]:
    """Return the folders of the host with packages that the interpreter does not import."""
    if not is_virtual() or _sees_packages_of_base() or _is_system(_base()):
        return []
    return [_base() / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"]


def environment_words(private: Path) -> Words:
    """Return the options of bubblewrap for the files of a virtual environment that contain names of the host.

    Args:
        private: folder for new files.
    """
    if not is_virtual():
        return []
    settings, programs = private / "pyvenv.cfg", private / "bin"
    both = str(_sees_packages_of_base()).lower()
    settings.write_text(f"home = {_inside(_base())}/bin\ninclude-system-site-packages = {both}\n")
    programs.mkdir()
    for name in ("python", "python3"):
        (programs / name).symlink_to(_inside(_program()))
    words: Words = ["--ro-bind", settings, f"{ENVIRONMENT}/pyvenv.cfg", "--ro-bind", programs, f"{ENVIRONMENT}/bin"]
    for file in _files_of_bin():
        place = programs / file.name
        if _is_script(file):
            _, _, code = file.read_bytes().partition(b"\n")
            place.write_bytes(f"#!{executable()}\n".encode() + code)
        else:
            place.touch()
            words += ["--ro-bind", file, f"{ENVIRONMENT}/bin/{file.name}"]
        place.chmod(0o755)
    settings.chmod(0o644)
    programs.chmod(0o755)
    return words


def shared_programs() -> list[Path]:
    """Return the programs of a virtual environment that are not below a folder of `interpreter_folders`."""
    return [file for file in _files_of_bin() if not _is_script(file)] if is_virtual() else []


def variables() -> dict[str, str]:
    """Return the environment variables that the interpreter needs inside."""
    # An interpreter with a shared library names the library by a path of the host.
    shared = sysconfig.get_config_var("Py_ENABLE_SHARED") and not _is_system(_base())
    return {"LD_LIBRARY_PATH": f"{PYTHON}/lib"} if shared else {}


def is_virtual() -> bool:
    """Return whether the interpreter is a virtual environment that is not below ``/usr``."""
    return _prefix() != _base() and not (_is_system(_prefix()) and _is_system(_base()))


def _prefix() -> Path:
    return Path(os.path.realpath(sys.prefix))


def _base() -> Path:
    return Path(os.path.realpath(sys.base_prefix))


def _program() -> Path:
    return Path(os.path.realpath(sys.executable))


def _is_system(path: Path) -> bool:
    return path.is_relative_to("/usr")


def _files_of_bin() -> list[Path]:
    """Return the programs of the virtual environment; files that shells read have names of the host."""
    files = (file for file in (_prefix() / "bin").iterdir() if file.is_file() and not file.is_symlink())
    return sorted(file for file in files if os.access(file, os.X_OK))


def _is_script(file: Path) -> bool:
    """Return whether a file is a script for this interpreter, whose first line has a name of the host."""
    with open(file, "rb") as opened:
        return opened.readline(1000).startswith(b"#!" + os.fsencode(sys.prefix))


def _sees_packages_of_base() -> bool:
    try:
        settings = (_prefix() / "pyvenv.cfg").read_text().lower().replace(" ", "")
    except OSError:
        return False
    return "include-system-site-packages=true" in settings


def _inside(path: Path) -> str:
    """Return the name inside of a path in the interpreter's base folder."""
    if _is_system(path) or not path.is_relative_to(_base()):
        return str(path)
    return f"{PYTHON}/{path.relative_to(_base())}".removesuffix("/.")
