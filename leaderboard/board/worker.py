"""A worker: takes jobs from the queue, has each verified, and writes the results, until it is stopped.

How a submission is run again is not known here; it is the function ``verify``. What is known here is how to be killed:
at any moment, without losing or doubling a result. Asked to end (SIGTERM, Ctrl-C) a worker gives its job back at once.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from leaderboard import manifest as manifests
from leaderboard import queue
from leaderboard.check import MANIFEST
from leaderboard.engine import reading
from leaderboard.errors import LeaseLostError, SubmissionError
from leaderboard.migrations import open_database
from leaderboard.queue import Lease
from leaderboard.submissions import package_of
from leaderboard.verification import Verification, Verify

INSISTING_SECONDS = (1.0, 5.0, 15.0, 60.0, 120.0, 300.0)  # pauses between attempts to write one result
log = logging.getLogger(__name__)


class WorkerStoppedError(BaseException):
    """Interrupts a verification. Not an Exception, so that no verification takes it for a failure of its own."""


def work(
    database_url: str,
    verify: Verify,
    *,
    name: str | None = None,
    lease_seconds: float = queue.LEASE_SECONDS,
    poll_seconds: float = 2.0,
    backoff_seconds: float = queue.BACKOFF_SECONDS,
    until_empty: bool = False,
) -> int:
    """Verify submissions until SIGTERM, and return how many jobs were finished.

    Args:
        database_url: of the board's database; several workers on several machines may share it.
        verify: runs a submission again.
        name: under which the worker appears in the audit log; default: machine, process and a random part.
        lease_seconds: a job whose worker was not heard of for so long is another's. It is renewed three times as often.
        poll_seconds: pause between two looks at an empty queue.
        backoff_seconds: pause before the second attempt of a job that failed.
        until_empty: end when no job is queued or running, instead of waiting for more.

    Raises:
        DatabaseError: the URL is none, or the tables are of another version.
    """
    name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    engine = open_database(database_url)
    finished = 0
    try:
        with _stopped_by_signals() as stop:
            while not stop.asked:
                try:
                    lease = queue.claim(engine, name, lease_seconds)
                    if lease is None:
                        with reading(engine) as session:
                            if until_empty and queue.waiting(session) == 0:
                                break
                        stop.wait(poll_seconds)
                        continue
                    finished += _do(engine, lease, verify, stop, lease_seconds, backoff_seconds)
                except OperationalError as error:  # the database is away: the lease may run out, the worker need not
                    log.warning("%s: the database does not answer (%s); trying again", name, error.orig)
                    stop.wait(poll_seconds)
    finally:
        engine.dispose()
    return finished


def _do(
    engine: Engine, lease: Lease, verify: Verify, stop: _Stop, lease_seconds: float, backoff_seconds: float
) -> bool:
    """One job, to its end, whatever that is; whether it has a result now."""
    log.info("submission %d: attempt %d", lease.submission_id, lease.attempt)
    try:
        with _kept(engine, lease, lease_seconds) as heartbeat:
            verification = _verify(engine, lease, verify, stop, heartbeat)
        _insist(lambda: queue.finish(engine, lease, verification), stop)
        log.info("submission %d: %s", lease.submission_id, verification.worst)
        return True
    except LeaseLostError as error:
        log.warning("%s", error)
    except WorkerStoppedError:
        _unless_lost(lambda: queue.release(engine, lease))
        log.info("submission %d: given back", lease.submission_id)
    except OperationalError:
        raise
    except SubmissionError as error:
        message = str(error)
        _unless_lost(lambda: queue.fail(engine, lease, message, retry=False))
        log.info("submission %d: cannot be run: %s", lease.submission_id, message)
    except Exception as error:
        trace = "".join(traceback.format_exception(error, limit=-8))[-4_000:]
        _unless_lost(lambda: queue.fail(engine, lease, trace, backoff_seconds=backoff_seconds))
        log.warning("submission %d: attempt %d failed: %s", lease.submission_id, lease.attempt, error)
    return False


def _verify(engine: Engine, lease: Lease, verify: Verify, stop: _Stop, heartbeat: _Heartbeat) -> Verification:
    with reading(engine) as session:
        package = package_of(session, lease.submission_id)
    manifest = manifests.parse(package.files[MANIFEST])
    with stop.interrupting():
        return verify(package, manifest, heartbeat.progress)


def _insist(act: Callable[[], object], stop: _Stop) -> None:
    """Write hours of work, though the database is away for some minutes. Written twice, the second is refused."""
    for pause in (*INSISTING_SECONDS, None):
        try:
            act()
            return
        except OperationalError as error:
            if pause is None or stop.asked:
                raise
            log.warning("the database does not answer (%s); writing the result again in %g s", error.orig, pause)
            stop.wait(pause)


def _unless_lost(act: Callable[[], object]) -> None:
    try:
        act()
    except LeaseLostError as error:
        log.warning("%s", error)


class _Heartbeat:
    """Renews a lease from a thread of its own, and tells the verification when that is over."""

    def __init__(self, engine: Engine, lease: Lease, lease_seconds: float) -> None:
        self._engine, self._lease, self._seconds = engine, lease, lease_seconds
        self._text: str | None = None
        self._over = threading.Event()
        self._lost: LeaseLostError | None = None
        self.thread = threading.Thread(target=self._beat, name=f"lease of job {lease.job_id}", daemon=True)

    def progress(self, text: str) -> None:
        """Say how far the verification is; written with the next renewal.

        Raises:
            LeaseLostError: the job is another worker's; going on is of no use.
        """
        if self._lost is not None:
            raise self._lost
        self._text = text

    def _beat(self) -> None:
        while not self._over.wait(self._seconds / 3):
            try:
                queue.renew(self._engine, self._lease, self._seconds, self._text)
            except LeaseLostError as error:
                self._lost = error
                return
            except OperationalError as error:  # the next beat may reach it
                log.warning("job %d: lease not renewed (%s)", self._lease.job_id, error.orig)

    def end(self) -> None:
        """Renew no more."""
        self._over.set()
        self.thread.join()


@contextmanager
def _kept(engine: Engine, lease: Lease, lease_seconds: float) -> Iterator[_Heartbeat]:
    heartbeat = _Heartbeat(engine, lease, lease_seconds)
    heartbeat.thread.start()
    try:
        yield heartbeat
    finally:
        heartbeat.end()


class _Stop:
    """Whether the worker was asked to end; a verification that runs is interrupted, a transaction is not."""

    def __init__(self) -> None:
        self.asked = False
        self._interrupts = False

    def ask(self, signum: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._interrupts:
            self._interrupts = False  # once: what cleans up is not interrupted
            raise WorkerStoppedError

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        self._interrupts = True
        try:
            if self.asked:
                raise WorkerStoppedError
            yield
        finally:
            self._interrupts = False

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.asked and time.monotonic() < end:
            time.sleep(min(0.1, max(0.0, end - time.monotonic())))


@contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():  # where Python takes no signals
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
