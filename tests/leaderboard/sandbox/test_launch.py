"""A process is prepared before it becomes bubblewrap: keyring, user, descriptors, limits, and what it can reach."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from leaderboard.sandbox import isolation, sandbox
from leaderboard.sandbox.isolation import Isolation, Start, isolation_here, launcher
from leaderboard.sandbox.sandbox import ISOLATED, Limits, level_here, sandboxed

from ..attempts import outcomes

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
OWN = Start(isolation._OWN_USERS, staged=True)
SESSION = """
import ctypes, platform
number = {"x86_64": 250, "aarch64": 219}[platform.machine()]
print(ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(1)))
"""


def launched(code, start=None, **more):
    command = [sys.executable, "-c", code]
    descriptors = more.get("descriptors", ())
    words = launcher(command, start, **more)
    return subprocess.run(words, capture_output=True, text=True, pass_fds=descriptors, check=True).stdout.strip()


def test_each_process_has_a_session_keyring_of_its_own():
    own = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, check=True).stdout.strip()
    found = [own, launched(SESSION), launched(SESSION)]
    if "-1" in found:
        pytest.skip("the kernel has no keyrings here")
    assert len(set(found)) == 3


def test_descriptors_have_the_same_numbers_in_every_run():
    code = """
import os
found = []
for number in range(200):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
print(found, os.read(3, 9), os.read(4, 9))
"""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open(os.devnull)).fileno() for _ in range(90)]
        for chosen in ((opened[0], opened[1]), (opened[70], opened[3])):
            for number, text in zip(chosen, (b"first", b"second"), strict=True):
                reading, writing = os.pipe()
                os.write(writing, text)
                os.dup2(reading, number)
                os.close(reading)
                os.close(writing)
            assert launched(code, descriptors=chosen) == "[0, 1, 2, 3, 4] b'first' b'second'"


def test_limits_of_the_parent_are_not_raised():
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CPU))"
    words = launcher([sys.executable, "-c", code], limits={"RLIMIT_NOFILE": 500, "RLIMIT_CPU": 50})
    lower = ["prlimit", "--nofile=100:200", *words]
    made = subprocess.run(lower, capture_output=True, text=True, check=True).stdout
    assert made.strip() == "(200, 200) (50, 50)"


@root
def test_a_process_of_root_becomes_a_user_of_its_own_without_groups():
    code = "import os; print(os.getresuid(), os.getresgid(), os.getgroups())"
    found = {
        subprocess.run(launcher(["python3", "-c", code], OWN), capture_output=True, text=True).stdout for _ in range(3)
    }
    assert len(found) == 3
    for line in found:
        first = line[1:].partition(",")[0]
        assert int(first) in isolation._OWN_USERS
        assert line.strip() == f"({', '.join([first] * 3)}) ({', '.join([first] * 3)}) []"


@root
def test_a_process_reaches_the_files_that_it_is_given_also_in_folders_of_root(tmp_path):
    folder = tmp_path / "closed" / "given"
    folder.mkdir(parents=True)
    (folder / "file").write_text("content")
    folder.parent.chmod(0o700)
    code = "import os, sys; print(open(sys.argv[1] + '/file').read(), os.access(sys.argv[2], os.F_OK))"
    words = launcher(["python3", "-c", code, folder, str(folder)], OWN)
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Operation not permitted" in made.stderr:
        pytest.skip("this container cannot mount")
    assert made.stdout == "content False\n"
    assert "alma" not in {line.split()[0] for line in Path("/proc/mounts").read_text().splitlines()}


@root
def test_a_sandbox_of_root_is_no_process_of_root():
    if level_here() != ISOLATED or isolation_here().start.users is None:
        pytest.skip("no other user can start bubblewrap here")
    with (
        open(os.devnull, "wb") as output,
        sandboxed("timeit", ["-n1", "import time; time.sleep(300)"], Limits(), output=output.fileno()) as box,
    ):
        with open(f"/proc/{box.process.pid}/status") as file:
            status = dict(line.strip().partition(":\t")[::2] for line in file)
        assert all(int(word) in isolation_here().start.users for word in status["Uid"].split())
        assert int(status["CapEff"], 16) == 0


def test_where_only_root_can_start_a_sandbox_a_warning_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(isolation, "_probe", lambda start: None if start.users is None else "no user namespaces")
    monkeypatch.setattr(isolation.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.warns(RuntimeWarning, match="sandboxes run as root of this machine, .*: no user namespaces"):
        assert isolation._find.__wrapped__() == Isolation(Start())


def test_without_isolation_the_error_has_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(isolation, "_probe", lambda start: "bwrap: No permissions to create new namespace")
    monkeypatch.setattr(isolation.shutil, "which", lambda name: f"/usr/bin/{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = isolation._find.__wrapped__()
    monkeypatch.setattr(sandbox, "isolation_here", lambda: found)
    match = "allow limits only.*No permissions to create new namespace"
    with pytest.raises(sandbox.SandboxError, match=match), sandboxed("timeit", [], Limits(), output=1):
        pass


def test_a_machine_without_a_filter_is_not_isolated(monkeypatch):
    monkeypatch.setattr(isolation.platform, "machine", lambda: "vax")
    monkeypatch.setattr(isolation.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert isolation._find.__wrapped__() == Isolation(None, "there is no filter of system calls for vax")


def test_a_probe_that_could_not_run_is_repeated(monkeypatch):
    faults = [BlockingIOError(errno.EAGAIN, "no process"), subprocess.TimeoutExpired("bwrap", 60)]

    def probe(start):
        if faults:
            raise faults.pop()

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(isolation, "_find", functools.cache(isolation._find.__wrapped__))
    monkeypatch.setattr(isolation, "_probe", probe)
    monkeypatch.setattr(isolation.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert [isolation_here().start for _ in range(3)] == [None, None, Start()]


def test_a_lock_file_stands_in_for_locks_in_the_sandbox(tmp_path):
    attempts = {
        "build": """
from pathlib import Path
from alma_env.build_cache import built
cache = Path(tempfile.mkdtemp())
folder = built(cache, "key", lambda folder: (folder / "file").write_text("content"))
result = (folder / "file").read_text(), built(cache, "key", None) == folder
""",
        "taken": """
from pathlib import Path
from alma_env.files import locked
file = Path(tempfile.mkdtemp()) / "lock"
with locked(file, wait=True) as held:
    try:
        with locked(file, wait=False):
            result = "twice"
    except Exception as error:
        result = held, type(error).__name__
""",
        "subclass": """
import filelock
class Lock(filelock.FileLock):
    def __enter__(self):
        return super().__enter__()
    def __exit__(self, *error):
        return super().__exit__(*error)
with Lock(tempfile.mkdtemp() + "/lock", timeout=60) as lock:
    result = lock.is_locked
""",
    }
    assert outcomes(attempts, tmp_path) == {
        "subclass": "True",
        "build": "('content', True)",
        "taken": "(True, 'FileLockedError')",
    }
