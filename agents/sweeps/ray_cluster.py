"""Jobs on a Ray cluster, one task per job; if the worker of a task dies, another worker continues from the checkpoint.

All machines must see the folder of the runs, and the files that the runs name, under the same paths.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Generator, Sequence
from typing import Any

import torch

from agents.sweeps.jobs import Advanced, Environments, Event, Failed, Finished, Job, run_job
from alma_env.errors import how_to_install

RETRIES = 3  # of a run whose worker died; a run that raised an error would raise it again
_POLL_SECONDS = 0.5
_PATIENCE = 10.0  # seconds in which a cluster must answer
_NO_CLUSTER = "no such cluster ({}); start one, or write --ray local"
_environments = Environments()  # kept between the tasks that Ray gives this worker process


def run_jobs(jobs: Sequence[Job], address: str, *, per_gpu: int = 0) -> Generator[Event, None, None]:
    """Run all jobs on a cluster.

    Args:
        jobs: the jobs.
        address: of the cluster, for ``ray.init``; ``auto``: the cluster of RAY_ADDRESS, else the cluster that runs on
            this machine, else a new local cluster; ``local`` or ``local:CORES``: a new local cluster.
        per_gpu: number of runs that share one GPU; 0: each run has its own GPU if the cluster has GPUs and the run's
            device allows it.

    Raises:
        ValueError: Ray is not installed, the address is wrong, ``per_gpu`` is given without a GPU, or a run needs more
            cores than the local cluster has.
    """
    try:
        ray = importlib.import_module("ray")
        queues = importlib.import_module("ray.util.queue")
    except ImportError as error:
        raise ValueError(f"--ray {address}: the package ray is missing; {how_to_install('cluster')}") from error
    if per_gpu < 0:
        raise ValueError(f"--per-gpu {per_gpu}: must be at least 1 run on each GPU; leave it out for 1")
    if per_gpu and address.partition(":")[0] == "local" and not torch.cuda.is_available():
        # Ray would wait for a GPU without end. A machine with a GPU can still join another cluster.
        raise ValueError(f"--per-gpu {per_gpu} with --ray {address}: PyTorch sees no GPU here; leave it out")
    arguments = _init_arguments(address)
    if arguments.get("address") == "local":  # a larger machine can still join another cluster
        _require_cores(jobs, arguments.get("num_cpus") or os.cpu_count() or 1, address)
    return _events(ray, queues, jobs, arguments, address, per_gpu)


def _init_arguments(address: str) -> dict[str, Any]:
    """Return the arguments of ``ray.init``."""
    kind, _, cores = address.partition(":")
    if kind == "local":
        if cores and not (cores.isdecimal() and int(cores) > 0):
            raise ValueError(f"--ray {address}: CORES must be a whole number of at least 1; write local or local:CORES")
        return {"address": "local", **({"num_cpus": int(cores)} if cores else {})}
    if address == "auto":
        if (named := os.environ.get("RAY_ADDRESS", "auto")) not in ("auto", "local"):
            _require_listening(named)
        return {}
    _require_listening(address)
    return {"address": address}


def _require_listening(address: str) -> None:
    """Raise ValueError at once if no process listens at the address; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # Ray reports what is wrong with it
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"--ray {address}: {_NO_CLUSTER.format(error)}") from error


def _events(
    ray: Any, queues: Any, jobs: Sequence[Job], arguments: dict[str, Any], address: str, per_gpu: int
) -> Generator[Event, None, None]:
    started = not ray.is_initialized()
    if started:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(**arguments, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ValueError(f"--ray {address}: {_NO_CLUSTER.format(error)}") from error
    pending: dict[Any, int] = {}
    try:
        queue = queues.Queue(actor_options={"num_cpus": 0})
        task = ray.remote(_run_job)
        has_gpus = ray.cluster_resources().get("GPU", 0) > 0
        for number, job in enumerate(jobs):
            resources = _resources(job, per_gpu, has_gpus=has_gpus)
            pending[task.options(**resources).remote(number, job, os.getcwd(), queue)] = number
        while pending:
            done, _ = ray.wait(list(pending), timeout=_POLL_SECONDS)
            yield from queue.get_nowait_batch(queue.qsize())
            for reference in done:
                number = pending.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayError as error:
                    yield Failed(number, f"Ray gave up the run, after {RETRIES} retries if its worker died: {error}")
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        if started:
            ray.shutdown()


def _require_cores(jobs: Sequence[Job], most: int, address: str) -> None:
    """Raise ValueError if a run needs more cores than the cluster has; Ray would wait for a larger machine."""
    for job in jobs:
        if job.spec.threads > most:
            raise ValueError(
                f"{job.spec} with --ray {address}: it needs {job.spec.threads} cores, and the cluster has {most}; "
                "give fewer --threads"
            )


def _resources(job: Job, per_gpu: int, *, has_gpus: bool) -> dict[str, Any]:
    spec = job.spec
    needs_gpu = spec.device != "cpu" and (has_gpus or per_gpu > 0 or spec.device != "auto")
    gpus = 1 / max(per_gpu, 1) if needs_gpu else 0
    return {"num_cpus": spec.threads, "num_gpus": gpus, "max_retries": RETRIES}


def _run_job(number: int, job: Job, directory: str, queue: Any) -> Finished | Failed:
    """Run a job; this is the task that Ray executes."""
    if os.path.isdir(directory):
        os.chdir(directory)  # file names are relative to the directory of the command

    def report(event: Advanced) -> None:
        queue.put_nowait(event)

    return run_job(number, job, _environments, report)
