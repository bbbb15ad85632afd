"""The filter of system calls (seccomp) as a program of the kernel's packet filter (classic BPF), for bubblewrap.

A refused call returns EPERM. A call that is newer than the lists, or that libraries replace when it is missing, returns
ENOSYS. A call of another architecture, such as the 32-bit calls of x86-64, ends the process, because the same numbers
mean other calls there. Source of the format: Linux, include/uapi/linux/{filter,seccomp}.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

from leaderboard.sandbox.system_calls import HIGHEST, Calls, Condition, OneOf, Without, calls

_LOAD, _RETURN = 0x20, 0x06
_EQUAL, _GREATER, _COMMON_BITS = 0x15, 0x25, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value


def filter_bytes(machine: str) -> bytes:
    """Return the filter of a machine, such as ``x86_64``, as the bytes of its instructions.

    Raises:
        KeyError: there are no lists of system calls for this machine.
    """
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions(calls(machine)))


def instructions(known: Calls) -> list[Instruction]:
    """Return the filter of an architecture."""
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *_unless(_EQUAL, known.architecture, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *(part for number in known.allowed for part in _if_equal(number, _ALLOW)),
        *(part for number in known.missing for part in _if_equal(number, _ERROR | errno.ENOSYS)),
        *(part for number, conditions in known.conditional.items() for part in _conditional(number, conditions)),
        # The calls of the x32 architecture have numbers from 2^30, so they do not exist, either.
        *_unless(_GREATER, HIGHEST, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]


def _if_equal(value: int, result: int) -> list[Instruction]:
    return [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, result)]


def _unless(comparison: int, value: int, result: int) -> list[Instruction]:
    return [(comparison, 1, 0, value), (_RETURN, 0, 0, result)]


def _conditional(number: int, conditions: tuple[Condition, ...]) -> list[Instruction]:
    body = [part for condition in conditions for part in _check(condition)]
    body.append((_RETURN, 0, 0, _ALLOW))
    return [(_EQUAL, 0, len(body), number), *body]


def _check(condition: Condition) -> Iterator[Instruction]:
    """Yield instructions that refuse the call if the condition does not hold, and that otherwise go on."""
    refuse = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    lower = _ARGUMENTS + 8 * condition.argument  # both architectures store the lower half first
    yield (_LOAD, 0, 0, lower)
    if isinstance(condition, OneOf):
        for left, value in zip(range(len(condition.values), 0, -1), condition.values, strict=True):
            yield (_EQUAL, left, 0, value)  # over the other values and the refusal
    elif isinstance(condition, Without):
        yield (_COMMON_BITS, 0, 1, condition.bits)
    else:
        yield (_EQUAL, 1, 0, 0)
        yield refuse
        yield (_LOAD, 0, 0, lower + 4)
        yield (_EQUAL, 1, 0, 0)
    yield refuse
