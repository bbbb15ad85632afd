"""Jobs in worker processes of this machine; a worker runs one job after another, so it imports once."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread

import torch

from agents.sweeps.jobs import Environments, Event, Failed, Finished, Job, Lost, run_job
from alma_env import AlmaError

_PATIENCE = 10.0  # seconds before a process that does not end is killed
_SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit the locks of PyTorch's threads


class WorkerError(AlmaError):
    """No worker process could start."""


@dataclass
class _Worker:
    """A worker process.

    Attributes:
        process: the process.
        variables: environment variables, in addition to those of this process.
        job: number of its current job; None while it starts or has no job.
        ready: whether it has started.
    """

    process: SpawnProcess
    variables: Mapping[str, str]
    job: int | None = None
    ready: bool = False


def worker_variables(workers: int | None, per_gpu: int, threads: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker process.

    Args:
        workers: number of processes; None: as many as fill the cores.
        per_gpu: number of processes on each GPU, instead of ``workers``; 0: do not assign GPUs.
        threads: PyTorch threads of each process.

    Raises:
        ValueError: a number is less than 1, both numbers are given, or there is no GPU.
    """
    if per_gpu:
        if per_gpu < 1:
            raise ValueError(f"--per-gpu {per_gpu}: must be at least 1 run on each GPU; leave it out to assign no GPUs")
        if workers is not None:
            raise ValueError(f"--workers {workers} with --per-gpu {per_gpu}: give one of the two")
        gpus = _gpus()
        if not gpus:
            raise ValueError(f"--per-gpu {per_gpu}: PyTorch sees no GPU; leave it out, or give --workers")
        # One process on each GPU, then a second one: few runs are spread over all GPUs.
        return [{"CUDA_VISIBLE_DEVICES": gpu} for _ in range(per_gpu) for gpu in gpus]
    if workers is None:
        workers = max(_cores() // threads, 1)
    if workers < 1:
        raise ValueError(f"--workers {workers}: must be at least 1; leave it out to fill the cores")
    return [{} for _ in range(workers)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, in the form of CUDA_VISIBLE_DEVICES."""
    count, visible = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return (visible.split(",") if visible else [str(gpu) for gpu in range(count)])[:count]  # CUDA ignores invalid ones


def run_jobs(jobs: Sequence[Job], variables: Sequence[Mapping[str, str]]) -> Generator[Event, None, None]:
    """Run all jobs, with one process per element of ``variables``.

    A job fails if its process dies; the other jobs go on. A process that cannot start yields `Lost`, and the other
    processes run its jobs. Closing the iterator early ends the processes; the same jobs continue later from their
    checkpoints.

    Raises:
        WorkerError: jobs are left, and no process could start.
    """
    waiting = deque(range(len(jobs)))
    workers: dict[Connection, _Worker] = {}
    try:
        for one in variables[: len(jobs)]:
            _start(workers, one)
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
                    except OSError:  # it died without a job; another worker gets this job
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
    """Block SIGINT in processes that start here: a terminal sends Ctrl-C to all, but the parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # The start of the first process would start multiprocessing's tracker, too, which unblocks SIGINT.
    resource_tracker.ensure_running()
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
    """Run the worker process: run the jobs that arrive through the connection until it ends or breaks."""
    os.environ.update(variables)  # before CUDA reads them
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        sys.unraisablehook = lambda _: None  # a destructor may run now: it prints the exception and drops it
        sys.exit(128 + signal.SIGTERM)  # an exception, so that trackers close

    def report(event: Event | None) -> None:
        if ended:  # a destructor has dropped the exception
            sys.exit(128 + signal.SIGTERM)
        connection.send(event)

    signal.signal(signal.SIGTERM, end)
    Thread(target=_end_with_parent, daemon=True).start()
    environments = Environments()
    # A network of hundreds of experts is copied again and again, and a copy has many objects. Without these two lines,
    # the collector often visits all of them and the imported modules, which takes a quarter of the time.
    gc.freeze()
    gc.set_threshold(50_000)
    try:
        report(None)
        while (order := connection.recv()) is not None:
            number, job = order
            report(run_job(number, job, environments, report))
    except (EOFError, ConnectionError):  # the process of the sweep was killed
        pass


def _end_with_parent() -> None:
    """End this worker when its parent ends; a killed sweep sends no message and reads no results."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _how_it_ended(code: int | None) -> str:
    if code is None or code >= 0:
        return f"the worker process ended with status {code}"
    name = signal.Signals(-code).name
    hint = " (the system does this when memory is short: give fewer --workers)" if name == "SIGKILL" else ""
    return f"the worker process was ended by {name}{hint}"
