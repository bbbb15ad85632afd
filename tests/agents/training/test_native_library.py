"""How the C++ functions are built, kept and loaded, and what they do if the machine is short of something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.training.native import library
from agents.training.settings import StageSettings

from .test_native import CIFAR, mlp, needs_compiler, run, vgg19

pytestmark = needs_compiler
BUILD = "from agents.training.native import library; assert library.library() is not None"


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process with these environment variables."""
    environment = os.environ | variables
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture
def compiler_script(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes a compiler of a first line in a shell, before the true compiler.

    It does not optimise, which takes most of the time.
    """
    command = library.compiler()
    assert command is not None

    def make(first: str) -> str:
        script = tmp_path / "compiler"
        script.write_text(f'#!/bin/sh\n{first}\nexec {" ".join(command)} "$@" -O0\n')
        script.chmod(0o755)
        return str(script)

    return make


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "env no-such-compiler", '"open'])
def test_without_a_compiler_that_works_one_line_says_so(compiler: str, tmp_path: Path) -> None:
    code = "from agents.training.native import library\nprint(library.library(), library.library())"
    result = python(code, CXX=compiler, XDG_CACHE_HOME=str(tmp_path))
    assert result.stdout == "None None\n"
    assert result.stderr.count("RuntimeWarning: the native engine is not available") == 1
    assert compiler.split()[0] in result.stderr
    assert list(tmp_path.rglob("native.so")) == []


def test_the_compiler_can_have_arguments_and_print_warnings(
    tmp_path: Path, compiler_script: Callable[[str], str]
) -> None:
    script = compiler_script(r"printf 'warning: \351\n' >&2; [ $1 = first ] && shift")  # not valid as UTF-8
    result = python(BUILD, CXX=f"{script} first -DSECOND", XDG_CACHE_HOME=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
def test_clang_builds_it(tmp_path: Path) -> None:
    assert python(BUILD, CXX="clang++", XDG_CACHE_HOME=str(tmp_path)).stderr == ""


@pytest.fixture
def copying_compiler(tmp_path: Path) -> str:
    """Return a compiler that copies the functions built before: what is tested is where they are kept.

    It takes two seconds, as long as a process takes to start, and writes a line at each call.
    """
    built = library.library_folder()
    assert built is not None
    script = tmp_path / "compiler"
    script.write_text(f"""#!/bin/sh
echo called >> {tmp_path / "calls"}
sleep 2
for file; do :; done  # the last argument
cp {built / "native.so"} "$file"
""")
    script.chmod(0o755)
    return str(script)


def test_processes_that_start_together_build_once(tmp_path: Path, copying_compiler: str) -> None:
    environment = os.environ | {"CXX": copying_compiler, "XDG_CACHE_HOME": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, "-c", BUILD], env=environment) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len(list(tmp_path.rglob("native.so"))) == 1
    assert (tmp_path / "calls").read_text() == "called\n"


def empty(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path) -> None:
    os.truncate(file, 5000)


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[1000:2000] = bytes(1000)
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [empty, cut, change, Path.unlink])
@pytest.mark.parametrize("name", ["native.so", "checksum"])
def test_a_damaged_file_in_the_cache_is_built_again(
    name: str, damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library.platformdirs, "user_cache_path", lambda *_, **__: tmp_path)
    builds = []

    def build(command: list[str], folder: Path) -> None:
        builds.append(folder)
        (folder / "native.so").write_bytes(bytes(range(256)) * 100)
        (folder / "checksum").write_text(library._checksum(folder / "native.so"))

    monkeypatch.setattr(library, "_build", build)
    command = library.compiler()
    assert command is not None
    file = library._built(command)
    content = file.read_bytes()
    if name == "checksum" and damage in (cut, change):
        file.with_name(name).write_bytes(b"\xff" * 16)
    else:
        damage(file.with_name(name))
    assert library._built(command).read_bytes() == content
    assert library._built(command) == file
    assert len(builds) == 2


def test_functions_whose_folder_was_removed_are_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = library.library_folder()
    assert built is not None
    monkeypatch.setattr(library.platformdirs, "user_cache_path", lambda *_, **__: tmp_path)
    monkeypatch.setattr(library, "_build", lambda _, folder: shutil.copytree(built, folder, dirs_exist_ok=True))
    library.library.cache_clear()
    try:
        folder = library.library_folder()
        assert folder is not None
        assert folder.is_relative_to(tmp_path)
        shutil.rmtree(folder)
        assert library.library_folder() == folder
        assert (folder / "native.so").is_file()
    finally:
        library.library.cache_clear()


def cache_is_a_file(folder: Path) -> None:
    folder.write_text("")


def cache_is_read_only(folder: Path) -> None:
    folder.mkdir(mode=0o500)


@pytest.mark.parametrize("make", [cache_is_a_file, cache_is_read_only])
def test_a_cache_that_cannot_be_written_is_not_needed(
    make: Callable[[Path], None], tmp_path: Path, copying_compiler: str
) -> None:
    make(tmp_path / "cache")
    (tmp_path / "temporary").mkdir()
    folders = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "temporary")}
    result = python(BUILD, CXX=copying_compiler, **folders)
    assert (result.returncode, result.stderr) == (0, "")
    assert list((tmp_path / "temporary").glob("alma-native-*")) == []


@pytest.mark.parametrize(("make", "settings"), [(mlp, StageSettings(epochs=20)), (vgg19, CIFAR)])
def test_stages_in_two_threads_and_in_a_forked_process_do_not_disturb_one_another(
    make: Callable[[], Any], settings: StageSettings
) -> None:
    def weights(_: int) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(
            [p.contiguous() for p in run("native", make(), settings)[0].parameters()]
        )

    alone = weights(0)
    with ThreadPoolExecutor(2) as pool:
        assert all(torch.equal(state, alone) for state in pool.map(weights, range(4)))
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(weights(0), alone) else 1)
    assert os.waitpid(child, 0)[1] == 0


SHORT_OF_MEMORY = """
import resource, torch
from agents.networks.mlp_vgg import MLP, VGG19
from agents.training.native.native_stage import NativeExamples, NativeStage
from agents.training.settings import StageSettings

def stage_of(body, *inputs):
    x, y = torch.zeros(16, *inputs), torch.zeros(16, dtype=torch.int64)
    parts = NativeExamples(x, y), NativeExamples(x, y)
    return lambda: NativeStage(body, *parts, StageSettings())

random = torch.Generator()
stage_of(MLP(4, 4, 4, generator=random), 4)()  # builds and loads the functions
most = resource.getrlimit(resource.RLIMIT_AS)[1]
for threads, megabytes, start in (
    (1, 20, stage_of(MLP(4, 5000, 10, generator=random), 4)),
    (1, 20, stage_of(VGG19(128, 10, generator=random), 3, 32, 32)),
    (100, 200, stage_of(VGG19(4, 10, generator=random), 3, 32, 32)),
):
    torch.set_num_threads(threads)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, most))
    try:
        with start() as stage:
            stage.train_epoch(None, None)
            print(stage.score()[0] < 10)
    except MemoryError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of memory is that of Linux")


@pytest.fixture(scope="module")
def short_of_memory() -> list[str]:
    """Return what stages print in a process whose memory is limited, of which two need too much."""
    result = python(SHORT_OF_MEMORY)
    assert (result.stderr, result.returncode) == ("", 0)
    return result.stdout.splitlines()


@linux
def test_memory_that_is_short_is_a_memory_error(short_of_memory: list[str]) -> None:
    assert short_of_memory[:2] == 2 * [
        "engine='native': the memory is short for the networks of a stage; use a smaller batch_size or width, fewer "
        "processes at once, or engine='plain'"
    ]


@linux
def test_fewer_threads_compute_a_stage_if_the_system_starts_no_more(short_of_memory: list[str]) -> None:
    assert short_of_memory[2:] == ["True"]
