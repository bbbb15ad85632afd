"""Starts the program of a sandbox: ``python -m leaderboard.inside contestant|evaluator WORD...``.

Both import PyTorch, which is most of what a sandbox costs. Half a million objects come with it, and stay: the collector
does not look for garbage among them, neither while they are made nor, once frozen, in every collection of the run.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

PROGRAMS = {"contestant": ("agents", "torch._dynamo"), "evaluator": ()}  # and what each is going to import


def main() -> int:
    """Import the program and what it needs, then run it; the exit status."""
    name, words = sys.argv[1], sys.argv[2:]
    gc.disable()
    program = importlib.import_module(f"leaderboard.{name}")
    for module in PROGRAMS[name]:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    status: int = program.main(words)
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads and exit handlers of a submission are not waited for
