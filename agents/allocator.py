"""A setting of the C library's allocator that suits training on a CPU."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_freed_memory() -> None:
    """Tell glibc to reuse large freed blocks rather than return them to the system, for this process; else do nothing.

    Networks free and allocate the same activations at every step, and fresh pages are slow: up to a tenth of the time
    of VGG19 at width 32, by the machine. For command lines, once at their start; a library should not decide this.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(parameter, 1 << 30)
        mallopt(_M_TOP_PAD, 1 << 26)
