"""PyTorch's threads and the C library's memory allocator in the process of a command.

A command sets both once, at its start. The library itself leaves them alone, because they belong to its user's process.
"""

from __future__ import annotations

import ctypes
import sys

import torch

_MOST_THREADS = 1024  # OpenMP ends a process that asks for more threads than the system has
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def require_threads(what: str, threads: int) -> None:
    """Raise ValueError if a process cannot have so many threads.

    Args:
        what: the beginning of the message, which the number follows: ``--threads `` or ``threads=``.
        threads: the number of threads.
    """
    if not 1 <= threads <= _MOST_THREADS:
        raise ValueError(f"{what}{threads}: must be 1 to {_MOST_THREADS}; leave it out for the default")


def prepare(threads: int | None, backbone: str) -> None:
    """Set PyTorch's threads (None: 1 for an MLP, else the default) and the allocator before training starts."""
    if threads is not None:
        require_threads("--threads ", threads)
    # A second thread makes small matrix products slower.
    if threads is None and backbone == "mlp":
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
    if backbone == "switch":
        return_freed_memory()
    else:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Make glibc reuse large freed blocks instead of returning them to the system; no effect on other C libraries.

    A network frees and allocates the same activations at every step, and fresh pages are slow: they take up to a tenth
    of the time of VGG19 at width 32.
    """
    _set({_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: 1 << 30, _M_TOP_PAD: 1 << 26})


def return_freed_memory() -> None:
    """Make glibc return every freed block of 1 MiB or more to the system; no effect on other C libraries.

    The experts of a Switch Transformer receive different numbers of tokens at every step. Freed blocks that fit no
    later tensor would pile up to gigabytes in a thousand steps of the smallest network. A step takes about 7 % longer.
    """
    _set({_M_MMAP_THRESHOLD: 1 << 20})


def _set(parameters: dict[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter, value in parameters.items():
            if not mallopt(parameter, value):  # older glibc refuses a threshold of mmap above 32 MiB
                mallopt(parameter, 1 << 25)
