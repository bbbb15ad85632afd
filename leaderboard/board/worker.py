"""A worker: it claims jobs from the queue, verifies their submissions and writes the results until it is stopped.

The function ``verify`` runs a submission. A worker can be killed at any moment, and no result is lost or written twice.
On SIGTERM or Ctrl-C a worker returns its job to the queue and ends.
"""

from __future__ import annotations

import errno
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

from alma_env.errors import DataUnavailableError
from leaderboard.board import queue, scratch
from leaderboard.board.details import details
from leaderboard.board.queue import Lease
from leaderboard.board.submissions import package_of, require_described
from leaderboard.database.engine import reading
from leaderboard.errors import DamagedError, LeaseLostError, SubmissionError
from leaderboard.rules import RULES_VERSION
from leaderboard.sandbox.sandbox import SandboxError
from leaderboard.submission import manifest as manifests
from leaderboard.submission.static_check import MANIFEST
from leaderboard.verification.result import Verification, Verifier

WRITE_PAUSES_SECONDS = (1.0, 5.0, 15.0, 60.0, 120.0, 300.0)  # between attempts to write one result
NO_ROOM = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),  # disks
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),  # memory, open files
)
log = logging.getLogger(__name__)


class WorkerStoppedError(BaseException):
    """Interrupts a verification. It is not an Exception, so a verification does not catch it as its own error."""


def work(
    engine: Engine,
    verify: Verifier,
    *,
    name: str | None = None,
    lease_seconds: float = queue.LEASE_SECONDS,
    poll_seconds: float = 2.0,
    backoff_seconds: float = queue.BACKOFF_SECONDS,
    until_empty: bool = False,
) -> int:
    """Verify submissions until SIGTERM, and return the number of finished jobs.

    Args:
        engine: engine of the board's database. Several workers on several machines can share the database.
        verify: runs a submission.
        name: name in the audit log; by default machine, process and a random part.
        lease_seconds: length of a lease. The worker renews it three times as often.
        poll_seconds: pause between two queries of an empty queue.
        backoff_seconds: pause before the second attempt of a failed job.
        until_empty: end when no job is queued or running, instead of waiting for new jobs.
    """
    name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    finished = 0
    scratch.remove_abandoned()
    with _stopped_by_signals() as stop:
        while not stop.requested:
            try:
                lease = queue.claim(engine, name, lease_seconds)
                if lease is None:
                    with reading(engine) as session:
                        if until_empty and queue.waiting(session) == 0:
                            break
                    stop.wait(poll_seconds)
                    continue
                finished += _do(engine, lease, verify, stop, lease_seconds, backoff_seconds)
            except LeaseLostError as error:
                log.warning("%s", error)
            except OperationalError as error:  # the lease may end, but the worker goes on
                log.warning("%s: the database does not respond (%s); trying again", name, error.orig)
                stop.wait(poll_seconds)
            except Exception:  # such as a damaged row: its lease ends, and the other jobs go on
                log.exception("%s: a job was left; its lease will end", name)
                stop.wait(poll_seconds)
    return finished


def _do(
    engine: Engine, lease: Lease, verify: Verifier, stop: _Stop, lease_seconds: float, backoff_seconds: float
) -> bool:
    """Verify one job. Return whether its result was written; a lost lease raises LeaseLostError."""
    log.info("submission %d: attempt %d", lease.submission_id, lease.attempt)
    try:
        with _Heartbeat(engine, lease, lease_seconds) as heartbeat:
            verification = _verify(engine, lease, verify, stop, heartbeat)
        _write(lambda: queue.finish(engine, lease, verification), stop)
        log.info("submission %d: %s", lease.submission_id, verification.worst)
        return True
    except (LeaseLostError, OperationalError):
        raise
    except WorkerStoppedError:
        queue.release(engine, lease)
        log.info("submission %d: returned to the queue", lease.submission_id)
    except DamagedError as error:
        queue.hold(engine, lease, "damaged", str(error))
        log.error("submission %d: not verified: %s", lease.submission_id, error)
    except SubmissionError as error:
        queue.fail(engine, lease, str(error), retry=False, public=True)
        log.info("submission %d: it cannot run: %s", lease.submission_id, error)
    except Exception as error:
        if _fault_of_machine(error):
            reason = f"the machine of the worker cannot verify it: {error}"
            queue.interrupt(engine, lease, reason, pause_seconds=backoff_seconds)
            log.error("submission %d: this machine cannot verify it (%s); waiting", lease.submission_id, error)
            stop.wait(backoff_seconds)
            return False
        trace = "".join(traceback.format_exception(error, limit=-8))[-4_000:]
        queue.fail(engine, lease, trace, backoff_seconds=backoff_seconds)
        log.warning("submission %d: attempt %d failed: %s", lease.submission_id, lease.attempt, error)
    return False


def _fault_of_machine(error: BaseException | None) -> bool:
    """Return whether the machine, not the submission, is at fault: it is full, broken, or lacks data or isolation."""
    while error is not None:
        if isinstance(error, MemoryError | DataUnavailableError | SandboxError):
            return True
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__
    return False


def _verify(engine: Engine, lease: Lease, verify: Verifier, stop: _Stop, heartbeat: _Heartbeat) -> Verification:
    sent_under = details(engine, lease.submission_id).rules_version  # raises if a row is damaged
    if sent_under != RULES_VERSION:  # the result would be compared with results of other rules
        raise SubmissionError(
            f"sent under rules {sent_under}; this worker verifies rules {RULES_VERSION}; send it again, or upgrade the "
            "worker and retry if the worker is older than the board"
        )
    with reading(engine) as session:
        package = package_of(session, lease.submission_id)
        manifest = manifests.parse(package.files[MANIFEST])
        require_described(session, lease.submission_id, manifest)
    with scratch.folder_of_this_process(), stop.interrupting():
        return verify(package, manifest, heartbeat.progress)


def _write(act: Callable[[], object], stop: _Stop) -> None:
    """Write a result, and repeat if the database does not respond for some minutes. A second write is refused."""
    for pause in (*WRITE_PAUSES_SECONDS, None):
        try:
            act()
            return
        except OperationalError as error:
            if pause is None or stop.requested:
                raise
            log.warning("the database does not respond (%s); writing the result again in %g s", error.orig, pause)
            stop.wait(pause)


class _Heartbeat:
    """Renews a lease in a thread, and reports a lost lease to the verification."""

    def __init__(self, engine: Engine, lease: Lease, lease_seconds: float) -> None:
        self._engine, self._lease, self._seconds = engine, lease, lease_seconds
        self._text: str | None = None
        self._ended = threading.Event()
        self._lost: LeaseLostError | None = None
        self._thread = threading.Thread(target=self._beat, name=f"lease of job {lease.job_id}", daemon=True)

    def __enter__(self) -> _Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def progress(self, text: str) -> None:
        """Set the progress of the verification. The next renewal writes it.

        Raises:
            LeaseLostError: another worker has claimed the job, so the verification must stop.
        """
        if self._lost is not None:
            raise self._lost
        self._text = text

    def _beat(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            try:
                queue.renew(self._engine, self._lease, self._seconds, self._text)
            except LeaseLostError as error:
                self._lost = error
                return
            except OperationalError as error:  # the next renewal may succeed
                log.warning("job %d: lease not renewed (%s)", self._lease.job_id, error.orig)


class _Stop:
    """A request to stop the worker. It interrupts a verification, but not a transaction."""

    def __init__(self) -> None:
        self.requested = False
        self._interrupts = False

    def request(self, signum: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._interrupts:
            self._interrupts = False  # only once, so the cleanup is not interrupted
            raise WorkerStoppedError

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        self._interrupts = True
        try:
            if self.requested:
                raise WorkerStoppedError
            yield
        finally:
            self._interrupts = False

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.requested and time.monotonic() < end:
            time.sleep(min(0.1, max(0.0, end - time.monotonic())))


@contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():  # Python handles signals only in the main thread
        yield stop
        return
    before = {number: signal.signal(number, stop.request) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
