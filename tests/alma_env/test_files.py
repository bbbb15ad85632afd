"""Locks, and replacement of files in one step."""

from __future__ import annotations

import errno
import fcntl
import signal
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from alma_env.errors import FileLockedError
from alma_env.files import locked, replace_file, replacing

HOLD_NEW = (
    "from alma_env.files import locked\nfrom pathlib import Path\nwith locked(Path({file!r}), wait=True):\n    {do}"
)
HOLD_OLD = "import fcntl\nwith open({file!r}, 'a') as f:\n    fcntl.flock(f, fcntl.LOCK_EX)\n    {do}"


def hold(code: str, file: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds the lock until it is killed."""
    do = "import time; print('held', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", code.format(file=str(file), do=do)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


@pytest.mark.parametrize("code", [HOLD_NEW, HOLD_OLD], ids=["this version", "fcntl"])
def test_a_lock_of_another_process_is_refused_until_the_process_is_killed(code: str, tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("content")
    with hold(code, file) as holder:
        with pytest.raises(FileLockedError, match=f"{file}: another process"), locked(file, wait=False):
            pass
        holder.send_signal(signal.SIGKILL)
    with locked(file, wait=False) as held:
        assert held
    assert file.read_text() == "content"


def test_waiting_for_a_lock_ends_when_the_holder_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with hold(HOLD_NEW, file) as holder:
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            holder.kill()

        threading.Timer(0.3, kill).start()
        with locked(file, wait=True) as held:
            assert held
            assert killed.is_set()


def test_a_process_that_locks_with_fcntl_is_excluded(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", wait=True), open(tmp_path / "lock", "a") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_is_not_reentrant_and_excludes_threads(tmp_path: Path) -> None:
    file, refused = tmp_path / "lock", []

    def enter() -> None:
        try:
            with locked(file, wait=False):
                pass
        except FileLockedError:
            refused.append(threading.current_thread())

    with locked(file, wait=False):
        enter()
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 2
    enter()
    assert len(refused) == 2


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_without_locks_in_the_file_system_the_block_runs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    for wait in (True, False):
        with locked(tmp_path / "lock", wait=wait) as held:
            assert not held
    assert (tmp_path / "lock").is_file()


def test_other_errors_of_the_system_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(self: filelock.FileLock, **options: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(OSError, match="broken"), locked(tmp_path / "lock", wait=True):
        pass


def test_a_file_is_replaced_at_the_end_of_the_block_and_not_after_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    replace_file(file, "old ×")

    def fail() -> None:
        with replacing(file) as partial:
            partial.write_text("broken")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert file.read_text(encoding="utf-8") == "old ×"
    with replacing(file) as partial:
        partial.write_text("new")
        assert file.read_text(encoding="utf-8") == "old ×"
    assert file.read_bytes() == b"new"
    replace_file(file, b"newer", concurrent=True)
    assert file.read_bytes() == b"newer"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
