"""The cache: streams are built once, also by several processes, and damage is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")
from alma_env.errors import DataUnavailableError
from alma_env.text import arguments, packing
from alma_env.text.arguments import TextArguments
from alma_env.text.stream import TextStream

from .corpora import TRAIN, VALID, content, folders, put, released


def test_cold_warm_and_rebuilt_caches_give_the_same_numbers(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    cold = small()
    (folder,) = folders(tmp_path / "cache")
    written = folder.stat().st_mtime_ns
    warm = small()
    assert folder.stat().st_mtime_ns == written
    assert warm == cold
    assert content(warm) == content(cold)
    numbers = content(cold)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    again = small()
    assert again == cold
    assert content(again) == numbers
    assert content(small(cache=tmp_path / "elsewhere")) == numbers


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"ticks": 2}, {"sequence_length": 15}, {"vocabulary_size": 299}, {"test": "test.txt"}],
    ids=lambda change: next(iter(change)),
)
def test_another_argument_is_another_stream(
    tmp_path: Path, small: Callable[..., TextStream], change: dict[str, Any]
) -> None:
    if "test" in change:
        change = {"test": tmp_path / change["test"]}
    one, two = small(), small(**change)
    assert one != two
    assert one.data != two.data
    assert content(one) != content(two)
    assert len(folders(tmp_path / "cache")) == 2
    assert small() == one


def test_a_changed_text_is_another_stream(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    one = small()
    put(tmp_path / "valid.txt", VALID[::-1])
    assert small() != one
    assert released(small(), 2, "valid")[0] == VALID[-1]


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = packing.pack

    def slowly(arguments: TextArguments, folder: Path) -> None:
        put(tmp_path / "train.txt", TRAIN[::-1][1:])
        make(arguments, folder)

    monkeypatch.setattr(packing, "pack", slowly)
    with pytest.raises(DataUnavailableError, match="changed while it was read"):
        small()
    assert folders(tmp_path / "cache") == []


def test_a_failed_build_leaves_nothing(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(packing, "_sequences_in", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small()
    assert folders(tmp_path / "cache") == []
    assert small().sequences > 0


BUILD = """
import sys, time
from pathlib import Path
from alma_env.text import packing
from alma_env.text.stream import text_stream
here, hang = Path(sys.argv[1]), sys.argv[2] == "hang"
parts = packing._parts
def slow(arguments, n):
    print("building", flush=True)
    time.sleep(600 if hang else 0.3)
    return parts(arguments, n)
packing._parts = slow
stream = text_stream(here / "train.txt", valid=here / "valid.txt", ticks=3, sequence_length=16, vocabulary_size=300,
                     cache=here / "cache", seed=int(sys.argv[3]))
print(stream.data.digest, flush=True)
"""


def build(tmp_path: Path, how: str, seed: int = 0, threads: int = 3) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(tmp_path), how, str(seed)]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_scratch_folders_of_killed_builds_are_removed(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    with build(tmp_path, "hang") as same, build(tmp_path, "hang", seed=1) as other:
        for process in (same, other):
            assert process.stdout is not None
            assert process.stdout.readline() == "building\n"
        same.kill()
        same.wait()
        assert len(folders(tmp_path / "cache")) == 2
        stream = small()
        (living,) = (folder for folder in folders(tmp_path / "cache") if folder != stream.data.folder)
        assert ".building-" in living.name  # of the running process
        other.kill()
        other.wait()
        two = small(seed=2)
        assert folders(tmp_path / "cache") == sorted([stream.data.folder, two.data.folder])
    assert content(stream) == content(small(cache=tmp_path / "elsewhere"))


def test_two_processes_that_build_at_the_same_time_get_the_same_stream(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    """The digest is that of a stream that this process builds itself: three threads change nothing."""
    own = small(cache=tmp_path / "own")
    with build(tmp_path, "go") as one, build(tmp_path, "go") as two:
        outputs = [process.communicate()[0].split() for process in (one, two)]
        assert one.returncode == two.returncode == 0
    assert sorted(map(len, outputs)) == [1, 2]  # the second process waited for the first
    assert outputs[0][-1] == outputs[1][-1] == small().data.digest == own.data.digest
    assert len(folders(tmp_path / "cache")) == 1


def test_the_numbers_do_not_depend_on_the_process_or_on_a_single_thread(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    digest = small(cache=tmp_path / "own").data.digest
    with build(tmp_path, "go", threads=1) as process:
        assert process.communicate()[0].split() == ["building", digest]
    assert process.returncode == 0


def test_without_locks_the_first_build_to_finish_is_used(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    import contextlib

    from alma_env import build_cache

    monkeypatch.setattr(build_cache, "locked", lambda file, wait: contextlib.nullcontext(False))
    make, inner = packing.pack, []

    def build_twice(arguments: TextArguments, folder: Path) -> None:
        make(arguments, folder)
        if not inner:
            inner.append(None)
            inner.append(small())

    monkeypatch.setattr(packing, "pack", build_twice)
    stream = small()
    assert stream == inner[1]
    assert folders(tmp_path / "cache") == [stream.data.folder]


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("train-2.tokens", cut_short, "train-2.tokens has"),
        ("valid.tokens", Path.unlink, "valid.tokens is missing"),
        ("test.tokens", cut_short, "test.tokens has"),
        ("tokenizer.json", Path.unlink, "tokenizer.json is missing"),
        ("manifest.json", cut_short, "manifest.json cannot be read"),
        (
            "manifest.json",
            lambda file: file.write_text(file.read_text().replace('"seed": 0', '"seed": 1')),
            "content has changed",
        ),
        ("manifest.json", lambda file: file.write_text("[]"), "manifest.json cannot be read"),
        ("manifest.json", Path.unlink, "manifest.json is missing"),
    ],
)
def test_a_damaged_cache_is_an_error_that_names_the_folder_to_delete(
    small: Callable[..., TextStream], name: str, damage: Callable[[Path], object], message: str
) -> None:
    folder = small().data.folder
    damage(folder / name)
    with pytest.raises(DataUnavailableError, match=message) as caught:
        small()
    assert f"{folder}: " in str(caught.value)
    assert "delete this folder" in str(caught.value)


def test_megabatch_finds_a_missing_file(small: Callable[..., TextStream]) -> None:
    stream = small()
    (stream.data.folder / "train-3.tokens").unlink()
    with pytest.raises(DataUnavailableError, match=r"train-3.tokens cannot be opened"):
        stream.megabatch(3)


def test_the_default_cache_is_in_the_users_cache(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments.platformdirs, "user_cache_path", lambda name, appauthor: tmp_path / "home" / name)
    assert small(cache=None).data.folder.parent == tmp_path / "home" / "alma-env" / "text"
