"""Jobs in processes of this machine: each takes one after another, so that it imports and compiles once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread

import torch

from agents.experiments.work import Environments, Event, Failed, Finished, Job, Lost, perform
from alma_env import AlmaError

_PATIENCE = 10.0  # seconds that a process has to end by itself
_SPAWN = multiprocessing.get_context("spawn")  # a fork would share the locks of PyTorch's threads


class WorkerError(AlmaError):
    """No worker process can be started."""


@dataclass
class _Worker:
    """One process.

    Attributes:
        process: itself.
        variables: of its environment, beside those of this process.
        job: what it makes now; None while it starts or has nothing to do.
        ready: whether it has started.
    """

    process: SpawnProcess
    variables: Mapping[str, str]
    job: int | None = None
    ready: bool = False


def places(workers: int | None, per_gpu: int, threads: int) -> list[dict[str, str]]:
    """The variables of each worker process.

    Args:
        workers: how many; None: as many as fill the cores.
        per_gpu: how many on each GPU, in place of ``workers``; 0: GPUs are not shared out.
        threads: of PyTorch in each process.

    Raises:
        ValueError: fewer than one, both are given, or there is no GPU.
    """
    if per_gpu:
        if per_gpu < 1:
            raise ValueError(f"--per-gpu {per_gpu}: at least 1 run on each GPU")
        if workers is not None:
            raise ValueError(f"--workers {workers} beside --per-gpu {per_gpu}: give one of the two")
        gpus = _gpus()
        if not gpus:
            raise ValueError(f"--per-gpu {per_gpu}: PyTorch sees no GPU; leave it out, or give --workers")
        # Round the GPUs, so that few runs are spread over all of them.
        return [{"CUDA_VISIBLE_DEVICES": gpu} for _ in range(per_gpu) for gpu in gpus]
    if workers is None:
        workers = max(_cores() // threads, 1)
    if workers < 1:
        raise ValueError(f"--workers {workers}: at least 1 is needed")
    return [{} for _ in range(workers)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else []
    return names or [str(gpu) for gpu in range(torch.cuda.device_count())]


def carry_out(jobs: Sequence[Job], places: Sequence[Mapping[str, str]]) -> Generator[Event, None, None]:
    """Make all jobs, in as many processes as there are places; a job whose process dies has failed, the rest goes on.

    A process that cannot be started is told of, and leaves its jobs to the others. Whoever closes the iterator early
    ends the processes; what they were making goes on from its checkpoint.

    Raises:
        WorkerError: none could be started for the jobs that are left.
    """
    waiting = deque(range(len(jobs)))
    workers: dict[Connection, _Worker] = {}
    try:
        for variables in places[: len(jobs)]:
            _start(workers, variables)
        while workers:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                try:
                    event = connection.recv()
                except (EOFError, OSError):  # the process has ended
                    worker.process.join()
                    ended = _how_it_ended(worker.process.exitcode)
                    worker.process.close()
                    del workers[connection]
                    connection.close()
                    if worker.job is not None:
                        yield Failed(worker.job, ended)
                    if waiting and worker.ready:
                        _start(workers, worker.variables)
                    elif waiting and not workers:
                        raise WorkerError(
                            f"a worker process could not start: {ended}; in a script, call agents.sweep below "
                            '`if __name__ == "__main__":`'
                        ) from None
                    elif waiting:
                        yield Lost(f"a worker process could not start: {ended}")
                    continue
                if event is not None:
                    yield event
                if event is None or isinstance(event, Finished | Failed):
                    worker.ready = True
                    worker.job = waiting.popleft() if waiting else None
                    try:
                        connection.send(None if worker.job is None else (worker.job, jobs[worker.job]))
                    except OSError:  # it died with nothing to do; what it was to do is another one's
                        if worker.job is not None:
                            waiting.appendleft(worker.job)
                        worker.job = None
    finally:
        _end(workers)


def _start(workers: dict[Connection, _Worker], variables: Mapping[str, str]) -> None:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_work, args=(theirs, dict(variables)), name="alma sweep")
    with _without_interrupts():
        process.start()
    theirs.close()
    workers[ours] = _Worker(process, variables)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started here never hears Ctrl-C, which a terminal sends to all: its parent decides when it ends."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(workers: Mapping[Connection, _Worker]) -> None:
    for worker in workers.values():
        worker.process.terminate()
    for connection, worker in workers.items():
        worker.process.join(_PATIENCE)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.process.close()
        connection.close()


def _work(connection: Connection, variables: Mapping[str, str]) -> None:
    """The worker process: make what comes through the connection, until nothing does or nobody listens."""
    os.environ.update(variables)  # before CUDA is asked for anything
    # A pool of compilers in each process, of as many as there are cores, would be the square of these.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as an exception, so that trackers end
    Thread(target=_end_with_parent, daemon=True).start()
    environments = Environments()
    try:
        connection.send(None)
        while (order := connection.recv()) is not None:
            number, job = order
            connection.send(perform(number, job, environments, connection.send))
    except (EOFError, ConnectionError):  # the sweep was killed
        pass


def _end_with_parent() -> None:
    """A sweep that is killed can tell its workers nothing, and nobody would read what they make."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _how_it_ended(code: int | None) -> str:
    if code is None or code >= 0:
        return f"the worker process ended with status {code}"
    name = signal.Signals(-code).name
    hint = " (as the system does when memory is short: give fewer --workers)" if name == "SIGKILL" else ""
    return f"the worker process was ended by {name}{hint}"
