"""Verification workers beside a server: processes of their own, which end with it however it ends."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from leaderboard.cli.common import DATABASE_VARIABLE

PAUSE_SECONDS = 5.0  # before a worker that ended is started again
GRACE_SECONDS = 15.0  # in which a worker gives its job back
log = logging.getLogger(__name__)


@contextmanager
def beside(database_url: str, count: int, verify: str) -> Iterator[None]:
    """Have so many workers, for the time of a `with`. One that dies is replaced; the queue gives its job to another."""
    over = threading.Event()
    keepers = [
        threading.Thread(target=_keep, args=(database_url, verify, over), name=f"keeper of worker {number}")
        for number in range(count)
    ]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        over.set()
        for keeper in keepers:
            keeper.join()


def _keep(database_url: str, verify: str, over: threading.Event) -> None:
    while not over.is_set():
        # The URL may have a password, which does not belong on a command line that everyone sees. The worker's input
        # is a pipe that this process alone holds: where this process is killed it ends, and the worker with it.
        worker = subprocess.Popen(
            [sys.executable, "-m", "leaderboard.cli", "worker", "--verify", verify, "--while-input-is-open"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {DATABASE_VARIABLE: database_url},
        )
        try:
            while worker.poll() is None and not over.wait(0.2):
                pass
        finally:
            assert worker.stdin is not None
            worker.stdin.close()  # asks it to end
            try:
                worker.wait(GRACE_SECONDS if over.is_set() else None)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        if not over.is_set():
            log.warning("worker %d ended with %s; another one is started", worker.pid, worker.returncode)
            over.wait(PAUSE_SECONDS)
