"""Settings of the C library's allocator that suit training on a CPU."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_freed_memory() -> None:
    """Tell glibc to reuse large freed blocks rather than return them to the system, for this process; else do nothing.

    Networks free and allocate the same activations at every step, and fresh pages are slow: up to a tenth of the time
    of VGG19 at width 32, by the machine. For command lines, once at their start; a library should not decide this.
    """
    _set({_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: 1 << 30, _M_TOP_PAD: 1 << 26})


def return_freed_memory() -> None:
    """Tell glibc to return every freed block from 1 MiB on to the system, for this process; else do nothing.

    For a Switch Transformer, whose experts have other numbers of tokens at every step: freed blocks that fit no later
    tensor pile up, to gigabytes in a thousand steps of the smallest network. A step takes about 7 % longer.
    """
    _set({_M_MMAP_THRESHOLD: 1 << 20})


def _set(parameters: dict[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter, value in parameters.items():
            mallopt(parameter, value)
