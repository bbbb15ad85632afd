"""Worker processes next to a server: they end with the server, also if the server is killed."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

PAUSE_SECONDS = 5.0  # before a worker that ended is replaced
GRACE_SECONDS = 15.0  # for a worker to return its job to the queue
log = logging.getLogger(__name__)


@contextmanager
def running_workers(command: Sequence[str], environment: Mapping[str, str], count: int) -> Iterator[None]:
    """Run worker processes inside a ``with``. A worker that ends is replaced, and the queue reassigns its job.

    Args:
        command: command line of a worker. The worker must end when its standard input is closed.
        environment: additional environment variables. A database URL belongs here, because it may contain a password
            and every user of the machine can read command lines.
        count: number of workers.
    """
    stop = threading.Event()
    supervisors = [
        threading.Thread(target=_supervise, args=(command, environment, stop), name=f"supervisor of worker {number}")
        for number in range(count)
    ]
    for supervisor in supervisors:
        supervisor.start()
    try:
        yield
    finally:
        stop.set()
        for supervisor in supervisors:
            supervisor.join()


def _supervise(command: Sequence[str], environment: Mapping[str, str], stop: threading.Event) -> None:
    while not stop.is_set():
        # Only this process holds the pipe to the worker's input. The pipe closes if this process is killed.
        try:
            worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **environment}
            )
        except OSError as error:  # too many processes, or no memory: there may be room later
            log.error("no worker could be started (%s); trying again", error)
            stop.wait(PAUSE_SECONDS)
            continue
        try:
            while worker.poll() is None and not stop.wait(0.2):
                pass
        finally:
            assert worker.stdin is not None
            worker.stdin.close()  # the worker ends
            try:
                worker.wait(GRACE_SECONDS if stop.is_set() else None)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        if not stop.is_set():
            log.warning("worker %d ended with status %s; a new worker starts", worker.pid, worker.returncode)
            stop.wait(PAUSE_SECONDS)
