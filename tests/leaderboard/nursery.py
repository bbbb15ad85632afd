"""A process that forks workers and servers, so that a test can kill many without importing everything for each.

Reads lines from its input: each starts a process, whose number is printed: a worker, or, where the line is a JSON list,
the command line with these arguments. Ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

import scipy.stats  # noqa: F401  what a worker would import with its first result

sys.path.insert(0, str(Path(__file__).parent))

import fake_verify

import leaderboard.web.app  # noqa: F401  what a server would import
from leaderboard.cli import main
from leaderboard.worker import work


def command(arguments: list[str]) -> int:
    """The command line, which says nothing here."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    return main(arguments)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried by the system
    children = []
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            # Not the parent's way of ignoring children, which a verification may have.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if line.startswith("["):
                os._exit(command(json.loads(line)))
            url, verification, lease_seconds = line.split()
            done = work(url, getattr(fake_verify, verification), lease_seconds=float(lease_seconds), poll_seconds=0.05)
            os._exit(0 if done >= 0 else 1)
        children.append(child)
        print(child, flush=True)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
