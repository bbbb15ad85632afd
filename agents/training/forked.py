"""Training in a process that was forked from one which has used PyTorch."""

from __future__ import annotations

import multiprocessing

import torch


def use_one_thread_if_forked() -> None:
    """Let PyTorch compute with one thread, if this process is a fork.

    A fork copies the state of the parent's pool of threads (OpenMP), but not its threads. The first computation with
    several threads in the child then waits for them for ever.
    """
    if is_forked() and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


def is_forked() -> bool:
    """Return whether `multiprocessing` started this process by a fork of another."""
    if multiprocessing.parent_process() is None:
        return False
    # A process of the default context does not say how it was started; then it was by the default method.
    method = getattr(multiprocessing.current_process(), "_start_method", None) or multiprocessing.get_start_method()
    return bool(method == "fork")
