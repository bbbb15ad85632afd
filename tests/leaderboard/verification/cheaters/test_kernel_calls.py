"""Calls of the kernel that trace processes, configure the machine, or reach what other processes share."""

from __future__ import annotations

import platform

import pytest

from ...attempts import outcomes
from .gallery import case

# Numbers on x86-64 and on 64-bit ARM; None where the call does not exist.
REFUSED = {
    "makes and reads keyrings of the kernel": {"keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218)},
    "traces its processes": {"ptrace": (101, 117), "kcmp": (312, 272), "seccomp": (317, 277)},
    "reads and writes the memory of processes": {
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "process_mrelease": (448, 448),
    },
    "takes open files of other processes": {"pidfd_getfd": (438, 438)},
    "has the kernel read and write in rings": {
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "io_setup": (206, 0),
        "io_submit": (209, 2),
        "io_getevents": (208, 4),
    },
    "handles page faults itself": {"userfaultfd": (323, 282)},
    "asks which pages of a file are cached": {"mincore": (27, 232), "cachestat": (451, 451), "move_pages": (279, 239)},
    "drops or loads cached pages": {"fadvise64": (221, 223), "readahead": (187, 213), "remap_file_pages": (216, 234)},
    "counts page faults that read the disk": {"getrusage": (98, 165), "perf_event_open": (298, 241)},
    "moves pipes' pages without copies": {"splice": (275, 76), "tee": (276, 77), "vmsplice": (278, 75)},
    "writes all caches of the machine to its disk": {
        "sync": (162, 81),
        "syncfs": (306, 267),
        "sync_file_range": (277, 84),
    },
    "loads programs into the kernel": {
        "bpf": (321, 280),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
    },
    "mounts": {
        "mount": (165, 40),
        "umount2": (166, 39),
        "move_mount": (429, 429),
        "open_tree": (428, 428),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
    },
    "makes and enters namespaces": {"unshare": (272, 97), "setns": (308, 268)},
    "opens files by handles": {"open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264)},
    "hides memory from the kernel": {"memfd_secret": (447, 447)},
    "watches files": {
        "inotify_init": (253, None),
        "inotify_init1": (294, 26),
        "inotify_add_watch": (254, 27),
        "fanotify_init": (300, 262),
        "fanotify_mark": (301, 263),
    },
    "sets quotas, accounts and the log": {
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "acct": (163, 89),
        "syslog": (103, 116),
    },
    "sets clocks, names, swap and power": {
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "adjtimex": (159, 171),
        "clock_adjtime": (305, 266),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "swapon": (167, 224),
        "reboot": (169, 142),
    },
    "chooses the memory of processes": {
        "migrate_pages": (256, 238),
        "mbind": (237, 235),
        "set_mempolicy": (238, 237),
        "get_mempolicy": (239, 236),
    },
    "changes its personality and its segments": {
        "personality": (135, 92),
        "modify_ldt": (154, None),
        "iopl": (172, None),
    },
    "opens message queues": {"mq_open": (240, 180)},
}
MISSING = {
    "makes processes by a call whose flags lie in memory": {"clone3": (435, 435)},
    "asks what is cached by flags of opening and reading": {
        "openat2": (437, 437),
        "preadv2": (327, 286),
        "pwritev2": (328, 287),
    },
    "locks a file": {"flock": (73, 32)},
    "lists the mounts of the host": {"statmount": (457, 457), "listmount": (458, 458)},
    "makes calls that the lists do not know": {"one": (600, 600), "another": (2000, 2000)},
}
ARGUMENTS = {
    "makes namespaces by flags of a new process": ("result = call(56, 220, 0x10000011, 0, 0, 0, 0)", "EPERM"),
    "makes a process that is traced from its start": ("result = call(56, 220, 0x2011, 0, 0, 0, 0)", "EPERM"),
    "locks a part of a shared file": (
        "result = named(libc.fcntl(os.open(LARGE, os.O_RDONLY), fcntl.F_SETLK, struct.pack('hhqqi', 0, 0, 0, 0, 0)))",
        "EPERM",
    ),
    "locks a part of a shared file for an open file": (
        "result = named(libc.fcntl(os.open(LARGE, os.O_RDONLY), 37, struct.pack('hhqqi', 0, 0, 0, 0, 0)))",
        "EPERM",
    ),
    "takes a lease on a shared file": (
        "result = named(libc.fcntl(os.open(LARGE, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK))",
        "EPERM",
    ),
    "has itself notified of changes of a shared folder": (
        "result = named(libc.fcntl(os.open('/usr/bin', os.O_RDONLY), fcntl.F_NOTIFY, 1))",
        "EPERM",
    ),
    "writes a hint to the inode of a shared file": (
        "result = named(libc.fcntl(os.open(LARGE, os.O_RDONLY), 1036, ctypes.byref(ctypes.c_uint64(3))))",
        "EPERM",
    ),
    "reads the hint at the inode of a shared file": (
        "result = named(libc.fcntl(os.open(LARGE, os.O_RDONLY), 1035, ctypes.byref(ctypes.c_uint64(0))))",
        "EPERM",
    ),
    "enlarges its pipes": ("result = named(libc.fcntl(os.pipe()[0], 1031, 2**20))", "EPERM"),
    "types into the terminal": ("result = named(libc.ioctl(0, 0x5412, b'x'))", "EPERM"),
    "reads and loads the file system's caches of a shared file": (
        "file = os.open(LARGE, os.O_RDONLY)\n"
        "numbers = 0x6612, 0xC020662A, 0xC020660B\n"
        "result = ' '.join({named(libc.ioctl(file, ctypes.c_ulong(number), bytes(64))) for number in numbers})",
        "EPERM",
    ),
    "drops the cached pages of a shared file": (
        "at = ctypes.c_void_p(mapped())\n"
        "found = {named(libc.madvise(at, ctypes.c_size_t(65536), advice)) for advice in (20, 21, 25)}\n"
        "result = ' '.join(found)",
        "EPERM",
    ),
    "has its pages merged with those of others": (
        "at = ctypes.c_void_p(mapped())\n"
        "found = {named(libc.madvise(at, ctypes.c_size_t(65536), 12)), named(libc.prctl(67, 1, 0, 0, 0))}\n"
        "result = ' '.join(found)",
        "EPERM",
    ),
    "lets itself be traced": ("result = named(libc.prctl(0x59616D61, -1, 0, 0, 0))", "EPERM"),
    "fills the kernel's memory for connections of the machine": ("socket.socket(socket.AF_INET)", "EPERM"),
    "takes the pseudo-terminals of the machine": ("os.open('/dev/ptmx', os.O_RDWR)", "ENOENT"),
    "connects to the hypervisor": ("socket.socket(40, socket.SOCK_STREAM)", "EPERM"),
    "uses the kernel's cryptography": ("socket.socket(38, socket.SOCK_SEQPACKET)", "EPERM"),
    "listens to events of devices and to the audit": (
        "found = set()\n"
        "for protocol in (4, 9, 11, 15, 16):\n"
        "    found.add(named(libc.socket(16, 3, protocol)))\n"
        "result = ' '.join(found)",
        "EPERM",
    ),
    "counts the page faults of a child that read the disk": (
        "used = ctypes.create_string_buffer(256)\n"
        "result = call(61, 260, -1, 0, 1, used) + ' ' + call(247, 95, 0, 0, 0, 5, used)",
        "EPERM EPERM",
    ),
    "hides the use of resources above the lower half of a pointer": (
        "result = call(61, 260, -1, 0, 1, 2**32)",
        "EPERM",
    ),
    "opens the files of the kernel about processes and mounts": (
        "files = 'self/mountinfo', 'self/smaps', 'self/pagemap', 'self/io', 'self/ns', 'keys', 'locks', 'stat', 'sys'\n"
        "result = [file for file in files if os.path.exists('/proc/' + file)]",
        "[]",
    ),
}
# Machine code: the 32-bit call 20 (getpid) by interrupt 128.
FOREIGN = """
code = b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
result = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
X86 = {
    "makes 32-bit calls of another architecture": (FOREIGN, "SIGSYS"),
    "makes calls of the x32 architecture": (
        "result = call(0x40000000 + 101) + ' ' + call(0x40000000 + 39)",
        "ENOSYS ENOSYS",
    ),
}


def _calls(numbers):
    if platform.machine() == "aarch64":
        numbers = {name: (arm, arm) for name, (_, arm) in numbers.items()}
    known = [x86 for x86, _ in numbers.values() if x86 is not None]
    # Arguments of zeros: without a filter most of these calls would return other errors, or do nothing.
    return f"result = ' '.join(sorted({{call(number, number, 0, 0, 0, 0, 0, 0) for number in {known}}}))"


ATTEMPTS = {
    **{does: (_calls(numbers), "EPERM") for does, numbers in REFUSED.items()},
    **{does: (_calls(numbers), "ENOSYS") for does, numbers in MISSING.items()},
    **ARGUMENTS,
    **(X86 if platform.machine() == "x86_64" else {}),
}
TEXTS = {
    "ENOENT": "there are none there",
    "EPERM": "refused",
    "ENOSYS": "the call does not exist there",
    "SIGSYS": "the process ends",
    "[]": "there are none",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return outcomes({does: code for does, (code, _) in ATTEMPTS.items()}, tmp_path_factory.mktemp("calls"))


@pytest.mark.parametrize(
    ("does", "expected"),
    [case(does, TEXTS[expected.split()[0]], does, expected) for does, (_, expected) in ATTEMPTS.items()],
)
def test_a_call_that_a_submission_does_not_need_is_refused(found, does, expected):
    assert found[does] == expected
