"""A process that forks workers and servers, so that a test can start many without importing everything for each.

Each line of standard input starts a process and prints its id: a worker, or the command line if the line is a JSON list
of arguments. The process ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

import scipy.special  # noqa: F401  used by a worker's first result

sys.path.insert(0, str(Path(__file__).parent))

import fake_verify

import leaderboard.web.app  # noqa: F401  used by a server
from leaderboard.board.worker import work
from leaderboard.cli import main
from leaderboard.database.migrations import open_database


def command(arguments: list[str]) -> int:
    """Run the command line without output."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    return main(arguments)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps ended processes
    children = []
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            # A verification can have children of its own, which it must be able to wait for.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if line.startswith("["):
                os._exit(command(json.loads(line)))
            url, verification, lease_seconds = line.split()
            done = work(
                open_database(url),
                getattr(fake_verify, verification),
                lease_seconds=float(lease_seconds),
                poll_seconds=0.05,
            )
            os._exit(0 if done >= 0 else 1)
        children.append(child)
        print(child, flush=True)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
