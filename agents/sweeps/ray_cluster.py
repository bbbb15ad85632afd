"""Jobs on a Ray cluster: a task each, and where a task's worker dies, another one goes on from the checkpoint.

The folder of the runs, and files that they name, must be the same on all machines: a network file system.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Generator, Sequence
from typing import Any

import torch

from agents.experiments.work import Advanced, Environments, Event, Failed, Finished, Job, perform

RETRIES = 3  # of a run whose worker died; a run that failed is not repeated, since it would fail again
_LOOK_EVERY = 0.5  # seconds
_PATIENCE = 10.0  # seconds in which a cluster must answer
_NO_CLUSTER = "no such cluster ({}); start one, or write --ray local"
_environments = Environments()  # of this process, which is a worker's: Ray gives it one task after another


def carry_out(jobs: Sequence[Job], address: str, *, per_gpu: int = 0) -> Generator[Event, None, None]:
    """Make all jobs on a cluster.

    Args:
        jobs: what to make.
        address: of the cluster, as ``ray.init`` has it; ``auto``: the one that RAY_ADDRESS names or that runs on this
            machine, or else one of this machine's own; ``local``, ``local:CORES``: always that.
        per_gpu: how many runs share one GPU; 0: each has one to itself where the cluster has any, as its device allows.

    Raises:
        ValueError: Ray is not installed, the address is wrong, GPUs are to be shared where there is none, or a run
            wants more cores than any machine has.
    """
    try:
        ray = importlib.import_module("ray")
        queues = importlib.import_module("ray.util.queue")
    except ImportError as error:
        raise ValueError(f"--ray {address}: the package ray is missing; pip install 'alma-env[cluster]'") from error
    if per_gpu < 0:
        raise ValueError(f"--per-gpu {per_gpu}: at least 1 run on each GPU")
    if per_gpu and address.partition(":")[0] == "local" and not torch.cuda.is_available():
        # Ray would wait for a GPU for ever; to another cluster one may come.
        raise ValueError(f"--per-gpu {per_gpu} beside --ray {address}: PyTorch sees no GPU here; leave it out")
    where = _where(address)
    if where.get("address") == "local":  # to another cluster a larger machine may come
        _require_cores(jobs, where.get("num_cpus") or os.cpu_count() or 1, address)
    return _events(ray, queues, jobs, where, address, per_gpu)


def _where(address: str) -> dict[str, Any]:
    """Arguments of ``ray.init``."""
    kind, _, cores = address.partition(":")
    if kind == "local":
        if cores and not (cores.isdecimal() and int(cores) > 0):
            raise ValueError(f"--ray {address}: write local, or local:CORES with a whole number, at least 1")
        return {"address": "local", **({"num_cpus": int(cores)} if cores else {})}
    if address == "auto":
        if (named := os.environ.get("RAY_ADDRESS", "auto")) not in ("auto", "local"):
            _require_listening(named)
        return {}
    _require_listening(address)
    return {"address": address}


def _require_listening(address: str) -> None:
    """Ray itself waits for minutes where nobody listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # Ray says what is wrong with it
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"--ray {address}: {_NO_CLUSTER.format(error)}") from error


def _events(
    ray: Any, queues: Any, jobs: Sequence[Job], where: dict[str, Any], address: str, per_gpu: int
) -> Generator[Event, None, None]:
    begun = not ray.is_initialized()
    if begun:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ValueError(f"--ray {address}: {_NO_CLUSTER.format(error)}") from error
    pending: dict[Any, int] = {}
    try:
        queue = queues.Queue(actor_options={"num_cpus": 0})
        task = ray.remote(_perform)
        has_gpus = ray.cluster_resources().get("GPU", 0) > 0
        for number, job in enumerate(jobs):
            resources = _resources(job, per_gpu, has_gpus=has_gpus)
            pending[task.options(**resources).remote(number, job, os.getcwd(), queue)] = number
        while pending:
            done, _ = ray.wait(list(pending), timeout=_LOOK_EVERY)
            yield from queue.get_nowait_batch(queue.qsize())
            for reference in done:
                number = pending.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.RayError as error:
                    yield Failed(number, f"Ray gave the run up, after {RETRIES} retries if its worker died: {error}")
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        if begun:
            ray.shutdown()


def _require_cores(jobs: Sequence[Job], most: int, address: str) -> None:
    """Ray would wait without a word for a machine that has more."""
    for job in jobs:
        if job.specs[0].threads > most:
            raise ValueError(
                f"{job.specs[0]} with --ray {address}: it wants {job.specs[0].threads} cores, and there are {most}; "
                "give fewer --threads"
            )


def _resources(job: Job, per_gpu: int, *, has_gpus: bool) -> dict[str, Any]:
    spec = job.specs[0]
    wants = spec.device != "cpu" and (has_gpus or per_gpu > 0 or spec.device != "auto")
    gpus = 1 / max(per_gpu, 1) if wants else 0
    return {"num_cpus": spec.threads, "num_gpus": gpus, "max_retries": RETRIES}


def _perform(number: int, job: Job, directory: str, queue: Any) -> Finished | Failed:
    """The task."""
    if os.path.isdir(directory):
        os.chdir(directory)  # names of files are relative to where the command was given

    def tell(event: Advanced) -> None:
        queue.put_nowait(event)

    return perform(number, job, _environments, tell)
