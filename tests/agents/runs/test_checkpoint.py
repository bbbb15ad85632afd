"""A damaged checkpoint, a full disk and a read-only folder cost an error with a remedy, and no result."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents.cli import main
from agents.runs import checkpoint, run_folder
from agents.training.stage import LearnerError
from alma_env import AlmaEnv, Row

TICKS = 4
QUICK = ["run", "--width", "4", "--set", "epochs=1", f"ticks={TICKS}", "--out", "runs"]


class Stop(Exception):
    """Ends a run before its last tick."""


@pytest.fixture
def env() -> AlmaEnv:
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


def run_in(folder: Path, env: AlmaEnv, on_tick: Callable[[Row], None] | None = None) -> list[dict[str, Any]]:
    ledger = agents.run(env, agents.make("sm", env, width=4, epochs=1), 0, folder, on_tick=on_tick)
    return [{**vars(row), "seconds": None} for row in ledger]


def stop_before_the_end(row: Row) -> None:
    if row.tick == TICKS - 1:
        raise Stop


@pytest.fixture
def stopped(env: AlmaEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was stopped before its last tick, with a checkpoint."""
    monkeypatch.setattr(run_folder, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Stop):
        run_in(tmp_path / "stopped", env, stop_before_the_end)
    return tmp_path / "stopped"


def other_content(file: Path) -> None:
    torch.save({"env": {}, "agent": {}}, file)


def other_byte(file: Path) -> None:
    content, largest = bytearray(file.read_bytes()), max(ZipFile(file).infolist(), key=lambda one: one.file_size)
    content[largest.header_offset + largest.file_size] ^= 1  # in the numbers, since a header is before them
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda file: os.truncate(file, 5_000),
    "empty": lambda file: file.write_bytes(b""),
    "garbage": lambda file: file.write_bytes(bytes(range(256)) * 8),
    "other content": other_content,
    "one other bit": other_byte,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_without_it_the_run_repeats(env: AlmaEnv, stopped: Path, damage: str) -> None:
    DAMAGES[damage](stopped / "checkpoint.pt")
    with pytest.raises(ValueError, match=r"checkpoint\.pt: not a checkpoint, or a damaged one .*delete this file"):
        run_in(stopped, env)
    (stopped / "checkpoint.pt").unlink()
    assert run_in(stopped, env) == run_in(stopped.with_name("whole"), env)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("full", ["checkpoint.pt", "stages.jsonl"])
def test_a_full_disk_is_an_error_with_the_file_and_keeps_the_older_checkpoint(
    env: AlmaEnv, stopped: Path, full: str
) -> None:
    before, partial = (stopped / "checkpoint.pt").read_bytes(), stopped / f"{full}.partial"
    partial.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as raised:
        run_in(stopped, env)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(stopped / full))
    assert (stopped / "checkpoint.pt").read_bytes() == before
    assert not partial.is_symlink()
    assert run_in(stopped, env) == run_in(stopped.with_name("whole"), env)


def test_the_command_names_the_file_and_the_remedy_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoint.torch, "save", full)
    assert main(QUICK) == 2
    message = capsys.readouterr().err
    assert "checkpoint.pt: No space left on device; make room on its disk, and give the same command again" in message
    assert "Traceback" not in message


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call it to let every later write below the folder of the test fail; permissions do not stop the user root."""

    def refuse(path: object) -> None:
        if isinstance(path, str | os.PathLike) and Path(path).resolve().is_relative_to(tmp_path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def guarded(opens: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Any, mode: Any = "r", *rest: Any, **keywords: Any) -> Any:
            if mode & (os.O_WRONLY | os.O_RDWR) if isinstance(mode, int) else set(mode) & set("wax+"):
                refuse(path)
            return opens(path, mode, *rest, **keywords)

        return opening

    def changing(function: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *rest: Any, **keywords: Any) -> Any:
            refuse(path)
            return function(path, *rest, **keywords)

        return change

    for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
        monkeypatch.setattr(module, name, guarded(getattr(module, name)))
    for name in ("mkdir", "replace", "unlink"):
        monkeypatch.setattr(os, name, changing(getattr(os, name)))


def test_finished_runs_in_a_read_only_folder_are_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(QUICK) == 0
    whole = capsys.readouterr().out
    request.getfixturevalue("read_only")
    for command in (QUICK, ["show", "runs"], ["policy", "compare", "runs"]):
        assert main(command) == 0
        out = capsys.readouterr().out
        assert "No picture" in out
        assert "Read-only file system" in out
        assert "wait 1" in out
        if command is QUICK:
            assert out.splitlines()[-2] == whole.splitlines()[-2] == "Runs are in runs/Digits-ALMA-v0/"
    assert main([*QUICK, "--seeds", "1"]) == 2  # this run is not finished
    assert "Read-only file system; choose a folder that can be read and written" in capsys.readouterr().err


@pytest.mark.parametrize(("takes", "ticks"), [(0.1, [1, 2, 3, 4]), (0.45, [1, 3, 4])])
def test_slow_checkpoints_are_rarer(
    env: AlmaEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float, ticks: list[int]
) -> None:
    """A tick takes 10 seconds here. After a checkpoint of 0.45 seconds, the next one is due 15 seconds later."""
    now, written, write = [0.0], [], checkpoint.write

    def slow(state: dict[str, Any], file: Path) -> None:
        now[0] += takes
        written.append(len(checkpoint.rows_of(state)) - 1)
        write(state, file)

    def later(row: Row) -> None:
        now[0] += 10.0

    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(checkpoint, "write", slow)
    run_in(tmp_path / "run", env, later)
    assert written == ticks  # the last one is always written


def test_a_state_that_could_not_be_read_again_is_refused_when_it_is_written(stopped: Path) -> None:
    file = stopped / "checkpoint.pt"
    before = file.read_bytes()
    for value in (np.zeros(2), np.float64(1)):
        with pytest.raises(LearnerError, match=r"holds numpy.*; let state_dict return tensors"):
            checkpoint.write({"env": {}, "agent": {"learner": {"means": value}}}, file)
    assert file.read_bytes() == before
