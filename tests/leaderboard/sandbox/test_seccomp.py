"""The filter of system calls decides the same on both architectures, and looks at the arguments."""

from __future__ import annotations

import errno
import platform
import re
import struct
import subprocess

import pytest

from leaderboard.sandbox.seccomp import filter_bytes
from leaderboard.sandbox.system_calls import calls, numbers

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
KILLED, ALLOWED = "killed", "allowed"


def decide(machine, number, *arguments, architecture=None):
    """Run the filter as the kernel does; return what comes of a call."""
    program = [struct.unpack("<HBBI", part) for (part,) in struct.iter_unpack("8s", filter_bytes(machine))]
    words = [argument % 2**64 for argument in arguments] + [0] * (6 - len(arguments))
    data = struct.pack("<IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *words)
    at = value = 0
    while True:
        code, if_true, if_false, k = program[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
        elif code == 0x06:
            kind = {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(k)
            return kind or errno.errorcode[k ^ 0x00050000]
        else:
            holds = {0x15: value == k, 0x25: value > k, 0x45: bool(value & k)}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_call_of_the_lists_gets_its_decision_and_all_others_are_refused(machine):
    known = calls(machine)
    for number in range(1000):
        if number in known.allowed:
            assert decide(machine, number) == ALLOWED
        elif number in known.missing or number > 451:
            assert decide(machine, number) == "ENOSYS"
        elif number not in known.conditional:
            assert decide(machine, number) == "EPERM"
    for number in (2**32 - 1, 2**31, 0x40000000, 0x40000000 + 1):
        assert decide(machine, number) == "ENOSYS"
    assert len(set(known.allowed)) == len(known.allowed)
    assert not set(known.allowed) & {*known.missing, *known.conditional}


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", [0x3D0F00], ALLOWED),  # a thread
        ("clone", [0x4111], ALLOWED),  # vfork
        *(("clone", [bit | 17], "EPERM") for bit in (0x20000, 0x2000000, 0x10000000, 0x20000000, 0x40000000, 0x2000)),
        ("fcntl", [5, 1030, 0], ALLOWED),
        ("fcntl", [5, 2**32 + 6, 0], "EPERM"),  # the kernel ignores the upper half
        ("fcntl", [5, 1024, 0], "EPERM"),
        ("ioctl", [0, 0x5401, 0], ALLOWED),
        ("ioctl", [0, 2**32 + 0x5412, 0], "EPERM"),
        ("madvise", [4096, 4096, 4], ALLOWED),
        ("madvise", [4096, 4096, 21], "EPERM"),
        ("prctl", [15, 1], ALLOWED),
        ("prctl", [67, 1], "EPERM"),
        ("socket", [1, 1, 0], ALLOWED),
        ("socket", [2, 1, 6], "EPERM"),
        ("socket", [10, 2, 17], "EPERM"),
        ("socket", [16, 3, 0], ALLOWED),
        ("socket", [16, 3, 15], "EPERM"),
        ("socket", [40, 1, 0], "EPERM"),
        ("socketpair", [40, 1, 0], "EPERM"),
        ("wait4", [-1, 4096, 0, 0], ALLOWED),
        ("wait4", [-1, 4096, 0, 1], "EPERM"),
        ("wait4", [-1, 4096, 0, 2**32], "EPERM"),
        ("waitid", [1, 5, 4096, 4, 0], ALLOWED),
        ("waitid", [1, 5, 4096, 4, 2**40], "EPERM"),
    ],
)
def test_some_calls_are_allowed_with_some_arguments_only(machine, name, arguments, expected):
    assert decide(machine, numbers(machine)[name], *arguments) == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_calls_of_another_architecture_end_the_process(machine):
    others = {0x40000003, 0x40000028, *ARCHITECTURES.values()} - {ARCHITECTURES[machine]}  # i386, 32-bit ARM
    assert {decide(machine, 1, architecture=other) for other in others} == {KILLED}


def test_the_filter_fits_into_a_program_of_the_kernel():
    assert all(len(filter_bytes(machine)) // 8 <= 4096 for machine in ARCHITECTURES)


@pytest.mark.skipif(platform.system() != "Linux", reason="the headers of Linux")
def test_the_numbers_are_those_of_the_kernel_headers():
    machine = platform.machine()
    text = "#include <sys/syscall.h>\n"
    made = subprocess.run(["cc", "-E", "-dM", "-"], input=text, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip("no C compiler")
    headers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", made.stdout)}
    shared = headers.keys() & numbers(machine).keys()
    assert len(shared) > 200
    assert {name: numbers(machine)[name] for name in shared} == {name: headers[name] for name in shared}
