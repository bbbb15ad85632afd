"""What one run could leave to the next run on the same machine."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import time
from pathlib import Path

import pytest

from leaderboard.sandbox import page_cache

from ...attempts import outcomes
from .gallery import attack, case

PAGE = mmap.PAGESIZE
BITS = 4096


def cached(file):
    """Return for each page of a file whether it is in memory."""
    with (
        open(file, "rb") as opened,
        mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE) as pages,
    ):
        size = len(pages)
        first = ctypes.c_char.from_buffer(pages)
        found = (ctypes.c_ubyte * (size // PAGE))()
        status = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), found)
        del first
        assert status == 0
        return [bool(byte & 1) for byte in found]


@attack("writes 4,096 bits into which pages of a shared file are cached", "all pages are cached before the next run")
def test_cached_pages_carry_no_message(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "visible_folders", lambda: {"/usr/lib": tmp_path})
    file = tmp_path / "library"
    file.write_bytes(os.urandom(BITS * PAGE))
    random.seed(0)
    message = [random.random() < 0.5 for _ in range(BITS)]
    for _ in range(3):  # another program may need memory meanwhile, for which the kernel takes pages of this file
        before = with_message(file, message)
        if all(before):
            pytest.skip("this file system lies in memory")
        written = sum(a == b for a, b in zip(before, message, strict=True)) > 0.99 * BITS
        page_cache.read_shared_files()
        if written and all(cached(file)):
            return
    assert written
    assert all(cached(file))


def with_message(file, message):
    """Let only the pages of a file be in memory whose bit is set; return which are."""
    with open(file, "rb+") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page, bit in enumerate(message):
            if bit:
                os.pread(opened.fileno(), 1, page * PAGE)
    return cached(file)


def missing_names():
    """Return how many names the kernel remembers that do not exist."""
    return int(Path("/proc/sys/fs/dentry-state").read_text().split()[4])


@attack("writes bits into which missing names of a shared folder are cached", "none is cached before the next run")
def test_looked_up_names_carry_no_message(tmp_path, monkeypatch):
    if not os.access(page_cache.FORGET, os.W_OK) or os.geteuid() != 0:
        pytest.skip("only root may let the kernel forget names")
    monkeypatch.setattr(page_cache, "read_shared_files", lambda: None)
    page_cache.reset_file_caches()
    before = missing_names()
    for number in range(100_000):
        os.path.lexists(tmp_path / f"message-{number}")
    written = missing_names() - before
    if written < 90_000:
        pytest.skip("this kernel does not count missing names, or remembers few")
    page_cache.reset_file_caches()
    assert missing_names() - before < written / 2


@attack("sets the times of devices, which are files of the host", "they are new before the next run")
def test_times_of_devices_carry_no_message(monkeypatch):
    monkeypatch.setattr(page_cache, "read_shared_files", lambda: None)
    monkeypatch.setattr(page_cache, "FORGET", Path("/does/not/exist"))
    os.utime("/dev/null")
    before = os.stat("/dev/null").st_mtime_ns
    time.sleep(0.05)
    page_cache.reset_file_caches()
    assert os.stat("/dev/null").st_mtime_ns > before


LEAVES = {
    "leaves files in its folders": (
        "for folder in ('/scratch', '/tmp', '/dev/shm'):\n    open(folder + '/message', 'w').write('1')",
        "result = [os.path.exists(folder + '/message') for folder in ('/scratch', '/tmp', '/dev/shm')]",
        "[False, False, False]",
    ),
    "leaves shared memory, semaphores and messages of System V": (
        "result = libc.shmget(77, 4096, 0o1666) >= 0, libc.semget(77, 1, 0o1666) >= 0, libc.msgget(77, 0o1666) >= 0",
        "result = libc.shmget(77, 0, 0) >= 0, libc.semget(77, 0, 0) >= 0, libc.msgget(77, 0) >= 0",
        "(False, False, False)",
    ),
    "leaves a socket with an abstract name": (
        "listening = socket.socket(socket.AF_UNIX)\nlistening.bind('\\0message')\nlistening.listen()",
        "socket.socket(socket.AF_UNIX).connect('\\0message')",
        "ECONNREFUSED",
    ),
    "writes attributes and times to shared files and to its own": (
        "found = set()\n"
        "for file in (LARGE, '/code/attempts.py', '/program/leaderboard/rules.py'):\n"
        "    changes = [lambda: os.setxattr(file, 'user.message', b'1'), lambda: os.utime(file, (1, 1))]\n"
        "    changes += [lambda: os.chmod(file, 0o700), lambda: os.link(file, file + '2'), lambda: os.remove(file)]\n"
        "    for change in changes:\n"
        "        try:\n"
        "            change()\n"
        "            found.add('changed')\n"
        "        except OSError as error:\n"
        "            found.add(errno.errorcode[error.errno])\n"
        "result = found <= {'EROFS', 'EBUSY', 'EXDEV', 'EPERM', 'EACCES'}",
        "result = os.listxattr(LARGE), os.stat(LARGE).st_mtime == 1",
        "([], False)",
    ),
    "leaves its priority, its limits and its name": (
        "import resource\n"
        "os.setpriority(0, 0, 19)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\n"
        "libc.prctl(15, b'message')",
        "import resource\n"
        "name = ctypes.create_string_buffer(16)\n"
        "libc.prctl(16, name)\n"
        "files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n"
        "result = os.getpriority(0, 0) == 19, files == 99, name.value == b'message'",
        "(False, False, False)",
    ),
}


@pytest.mark.parametrize(
    ("leave", "look", "expected"), [case(does, "nothing of it is there", *codes) for does, codes in LEAVES.items()]
)
def test_nothing_is_left_to_the_next_run(tmp_path, leave, look, expected):
    left = outcomes({"leave": leave}, tmp_path)["leave"]
    assert left in ("done", "(True, True, True)", "True"), left
    assert outcomes({"look": look}, tmp_path)["look"] == expected


@attack("looks for numbers of its run in names, numbers and variables", "they are the same in every run")
def test_a_run_sees_the_same_names_and_numbers_as_every_other_run(tmp_path):
    look = {
        "words": "result = sys.argv, sys.path, sys.prefix, os.getcwd(), sorted(os.environ.items())",
        "numbers": "result = os.getuid(), os.getgid(), os.getgroups(), os.getppid(), os.uname()[1]",
        "folders": "names = ' scratch tmp dev proc program code'.split(' ')\n"
        "result = [sorted(os.listdir('/' + name)) for name in names]",
        "descriptors": "found = []\n"
        "for number in range(300):\n"
        "    try:\n"
        "        os.fstat(number)\n"
        "        found.append(number)\n"
        "    except OSError:\n"
        "        pass\n"
        "result = found[:-2]",  # without the pipe of the attempt
    }
    reading, writing = os.pipe()
    found = []
    try:
        for name in ("one", "another-number"):
            (tmp_path / name).mkdir()
            more = [
                os.dup(reading) for _ in range(1 + 20 * len(found))
            ]  # the worker has other numbers at the second run
            found.append(outcomes(look, tmp_path / name, pass_fds=(more[-1], writing)))
            for descriptor in more:
                os.close(descriptor)
    finally:
        os.close(reading)
        os.close(writing)
    assert found[0] == found[1]
    assert found[0]["descriptors"] == "[0, 1, 2, 3, 4]"
    assert not [text for text in found[0].values() if str(tmp_path) in text or "alma-private" in text]


@attack("caches chosen pages of the submission's own files", "each run has copies of its own")
def test_the_submission_is_copied_for_each_run(tmp_path):
    look = {"file": "result = os.stat('/code/attempts.py').st_dev, os.stat('/code/attempts.py').st_ino"}
    inside = outcomes(look, tmp_path)["file"]
    original = os.stat(tmp_path / "code" / "attempts.py")
    assert inside != str((original.st_dev, original.st_ino))
