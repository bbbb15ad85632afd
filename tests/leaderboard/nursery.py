"""A process that forks workers, so that a test can kill many without importing everything for each.

Reads lines from its input: each starts a worker, a process of its own, whose number is printed. Ends with its input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import scipy.stats  # noqa: F401  what a worker would import with its first result

sys.path.insert(0, str(Path(__file__).parent))

import fake_verify

from leaderboard.worker import work

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried by the system
    children = []
    for line in sys.stdin:
        url, verification, lease_seconds = line.split()
        child = os.fork()
        if child == 0:
            # Not the parent's way of ignoring children, which a verification may have.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            done = work(url, getattr(fake_verify, verification), lease_seconds=float(lease_seconds), poll_seconds=0.05)
            os._exit(0 if done >= 0 else 1)
        children.append(child)
        print(child, flush=True)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
