"""The C++ functions of the native engine: built once per machine, kept in the user's cache, called through ctypes."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings
from ctypes import POINTER, c_double, c_float, c_int, c_long, c_void_p
from pathlib import Path

import platformdirs
import xxhash

from alma_env.build_cache import built

SOURCES = Path(__file__).parent
# No -ffast-math: NaN and infinite losses must be seen, and sums keep their order.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-march=native",
    *(["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []),
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
]


class Settings(ctypes.Structure):
    """`Settings` of stage.cpp."""

    _fields_ = (
        ("adadelta", c_int),
        *((name, c_float) for name in ("learning_rate", "momentum", "weight_decay", "rho", "eps", "logit_scale")),
    )


class Examples(ctypes.Structure):
    """`Examples` of network.h."""

    _fields_ = (("x", c_void_p), ("y", c_void_p), ("table", c_void_p))


class Crops(ctypes.Structure):
    """`Crops` of network.h."""

    _fields_ = (("top", c_void_p), ("left", c_void_p), ("mirror", c_void_p), ("padding", c_int))


def compiler() -> list[str] | None:
    """Return the command of the C++ compiler: the variable CXX, or else g++, clang++ or c++; None if there is none."""
    try:
        commands = [shlex.split(os.environ.get("CXX", ""))]  # its words, as in CXX="ccache g++"
    except ValueError:  # an open quotation
        return None
    if not commands[0]:
        commands = [["g++"], ["clang++"], ["c++"]]
    return next(([path, *rest] for name, *rest in commands if (path := shutil.which(name))), None)


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the functions, built at the first call on this machine; None, with a warning, if that is impossible."""
    command = compiler()
    if command is None:
        given = os.environ.get("CXX")
        reason = f"CXX={given!r} names no program" if given else "no C++ compiler was found"
        remedy = "correct CXX, or unset it to use g++" if given else "install g++, or set CXX"
        warnings.warn(f"{_PLAIN}: {reason}; {remedy}", RuntimeWarning, stacklevel=2)
        return None
    try:
        return _declared(ctypes.CDLL(str(_built(command))))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or error
        warnings.warn(
            f"{_PLAIN}: {shlex.join(command)} could not build it, or it cannot be loaded "
            f"({str(detail).strip()[-300:]})",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def library_folder() -> Path | None:
    """Return the folder of the functions, built if it is missing; None, with a warning, if that is impossible."""
    functions = library()
    if functions is not None and not _is_intact(Path(functions._name).parent):
        library.cache_clear()  # the folder was removed, such as a temporary one with the work for which it was made
        functions = library()
    return None if functions is None else Path(functions._name).parent


_PLAIN = "the native engine is not available, and the slower plain engine runs"


def _built(command: list[str]) -> Path:
    """Return the file of the functions in the cache, or in a temporary folder if the cache cannot be written."""
    sources = sorted(file for file in SOURCES.iterdir() if file.suffix in (".cpp", ".h"))
    digest = xxhash.xxh3_128()
    versions = (str(os.stat(path).st_mtime_ns) for path in map(shutil.which, command) if path)
    for part in (*FLAGS, *command, *versions, _processor()):
        digest.update(part.encode())
    for file in sources:
        digest.update(file.read_bytes())
    try:
        folder = built(
            platformdirs.user_cache_path("alma-env", appauthor=False) / "native",
            digest.hexdigest(),
            functools.partial(_build, command),
            _is_intact,
        )
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="alma-native-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _build(command, folder)
    return folder / "native.so"


def _build(command: list[str], folder: Path) -> None:
    file = folder / "native.so"
    command = [*command, *FLAGS, str(SOURCES / "stage.cpp"), "-o", str(file)]
    subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=300)
    (folder / "checksum").write_text(_checksum(file))


def _is_intact(folder: Path) -> bool:
    """Return whether the file is as it was built: a process that loads a truncated file is killed."""
    try:
        return (folder / "checksum").read_text() == _checksum(folder / "native.so")
    except (OSError, UnicodeDecodeError):
        return False


def _checksum(file: Path) -> str:
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


def _processor() -> str:
    """Return what -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = {line for line in file if line.startswith(("model name", "flags", "Features", "CPU part"))}
        return "".join(sorted(lines))
    except OSError:
        return f"{platform.machine()} {platform.processor()}"


def _declared(functions: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the functions of stage.cpp."""
    declarations = {
        "alma_mlp_stage": (
            *(c_void_p, c_int, POINTER(c_long), c_int),
            *(POINTER(c_int), POINTER(c_int), c_int, POINTER(Settings)),
        ),
        "alma_vgg_stage": (
            *(c_void_p, c_int, POINTER(c_long), POINTER(c_int), c_int, POINTER(c_int), POINTER(c_int), c_int),
            *(c_long, c_int, c_long, POINTER(Settings), c_int),
        ),
        "alma_read": (None, c_void_p, c_int, c_void_p),
        "alma_write": (None, c_void_p, c_int, c_void_p),
        "alma_train_epoch": (c_int, c_void_p, POINTER(Examples), c_void_p, POINTER(Crops), c_long, c_long),
        "alma_score": (c_int, c_void_p, POINTER(Examples), c_long, POINTER(c_double), POINTER(c_long)),
        "alma_delete": (None, c_void_p),
    }
    for name, (result, *arguments) in declarations.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return functions
