"""Threads and memory of a command's process, as they suit a backbone."""

from __future__ import annotations

import torch

from agents.allocator import keep_freed_memory, return_freed_memory


def prepare(threads: int | None, backbone: str) -> None:
    """Set them, once, before anything is trained; a library should not decide this.

    Args:
        threads: of PyTorch; None: 1 for an MLP, else as many as PyTorch takes.
        backbone: that of the recipe.

    Raises:
        ValueError: less than one thread.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"--threads {threads}: at least 1 is needed")
    # A second thread makes small matrix products slower, not faster.
    if threads is None and backbone == "mlp":
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
    if backbone == "switch":
        return_freed_memory()
    else:
        keep_freed_memory()
