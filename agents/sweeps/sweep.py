"""A sweep: many runs in several processes or on several machines, without the runs that are finished already."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agents.catalogue.spec import RunSpec
from agents.runs import load, run_folder
from agents.runs.load import FinishedRun
from agents.sweeps import grid, local, ray_cluster, run_index, trackers
from agents.sweeps.jobs import Event, Failed, Finished, Job, Lost
from agents.sweeps.pending import Plan, plan
from agents.sweeps.progress import SweepProgress, say


@dataclass(frozen=True)
class Failure:
    """A failed run, with the traceback or the end of its process."""

    spec: RunSpec
    traceback: str


@dataclass
class SweepReport:
    """The result of a sweep.

    Attributes:
        finished: the folder of every finished run, by ``RunSpec.digest()``.
        failed: the failed runs.
        skipped: number of runs that were finished before.
        lost: for each worker process that was lost and could not start again, the reason; other processes computed its
            runs.
    """

    finished: dict[str, Path] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    skipped: int = 0
    lost: list[str] = field(default_factory=list)

    def runs(self) -> list[FinishedRun]:
        """Read the finished runs from their folders."""
        return [run for folder in dict.fromkeys(self.finished.values()) for run in load.find(folder)[0]]


def sweep(
    runs: Sequence[RunSpec] | Mapping[str, Any] | str | Path,
    out: str | Path = "runs",
    *,
    workers: int | None = None,
    threads: int | None = None,
    per_gpu: int = 0,
    ray: str | None = None,
    fresh: bool = False,
    track: Sequence[str] = (),
    in_order: bool = False,
    console: Console | None = None,
) -> SweepReport:
    """Compute the runs of a grid that are not finished, each into its own folder: ``alma sweep`` from Python.

    A failed run does not stop the others. A run that was stopped continues from its checkpoint. In a script, call this
    function below ``if __name__ == "__main__":``, because worker processes import the script.

    Args:
        runs: the runs; or a grid, see ``agents.sweeps.grid``, as a table or as the path of a TOML file.
        out: folder of the environments' folders of run folders.
        workers: number of processes on this machine; None: enough to fill its cores, or one on each GPU.
        threads: PyTorch threads of each process, instead of the runs' own numbers.
        per_gpu: number of processes on each GPU of this machine, instead of ``workers``.
        ray: run on a Ray cluster: its address, ``auto``, ``local`` or ``local:CORES``.
        fresh: delete the folders of the runs first, finished or not.
        track: names of experiment trackers.
        in_order: start the runs in their order, so that a stop leaves the first ones; by default the longest first.
        console: where to print progress and failures; None: standard output.

    Returns:
        The finished and the failed runs.

    Raises:
        ValueError, TypeError, AlmaError: a run or an option is invalid; raised before any run starts.
        WorkerError: runs are left, and no worker process can start.
    """
    console = Console() if console is None else console
    specs = _specs(runs)
    if threads is not None:
        specs = [dataclasses.replace(spec, threads=threads) for spec in specs]
    trackers.require(track)
    out = Path(out).resolve()
    planned = plan(specs, out, fresh=fresh)
    report = SweepReport(dict(planned.finished), skipped=len(set(planned.finished.values())))
    digests = dict.fromkeys(spec.digest() for spec in specs)
    order = {digest: number for number, digest in enumerate(digests)} if in_order else None
    jobs = _jobs(planned, out, tuple(track), order)
    if jobs:
        out.mkdir(parents=True, exist_ok=True)  # an error here is reported once, not by every run
        events = _run_jobs(jobs, workers, per_gpu, ray)
        if fresh:
            earlier = run_index.folders_with(out, specs)  # other machines have other folders for the same runs
            run_folder.clear(*dict.fromkeys([*(one.folder for one in planned.pending.values()), *earlier]))
        try:
            with closing(events), SweepProgress(console, jobs, report.skipped) as progress:
                for event in events:
                    progress.show(event)
                    _add(report, jobs, event)
        finally:  # also after an interrupt
            _print_failures(report, console)
    report.finished |= {digest: report.finished[one] for digest, one in planned.same.items() if one in report.finished}
    return report


def _specs(runs: Sequence[RunSpec] | Mapping[str, Any] | str | Path) -> list[RunSpec]:
    if isinstance(runs, Mapping):
        return grid.expand(runs)
    return grid.read(Path(runs)) if isinstance(runs, str | Path) else list(runs)


def _jobs(planned: Plan, out: Path, track: tuple[str, ...], order: Mapping[str, int] | None) -> list[Job]:
    """Return the jobs in the given order of their digests.

    Without an order, the longest come first, so that workers end at about the same time; for equal work, short waits.
    """
    jobs = {digest: Job(pending.spec, pending.work, out, track) for digest, pending in planned.pending.items()}
    if order is not None:
        return [jobs[digest] for digest in sorted(jobs, key=order.__getitem__)]
    return sorted(jobs.values(), key=lambda job: (-job.work, job.spec.wait or math.inf))


def _run_jobs(jobs: Sequence[Job], workers: int | None, per_gpu: int, ray: str | None) -> Generator[Event, None, None]:
    if ray is not None:
        if workers is not None:
            raise ValueError(f"--workers {workers} with --ray {ray}: give one of the two, or --ray local:{workers}")
        return ray_cluster.run_jobs(jobs, ray, per_gpu=per_gpu)
    if workers is None and not per_gpu and any(job.spec.device != "cpu" for job in jobs):
        per_gpu = min(torch.cuda.device_count(), 1)  # one run per core would exceed the memory of the GPU
    threads = max(job.spec.threads for job in jobs)
    return local.run_jobs(jobs, local.worker_variables(workers, per_gpu, threads))


def _add(report: SweepReport, jobs: Sequence[Job], event: Event) -> None:
    if isinstance(event, Finished):
        report.finished[jobs[event.job].spec.digest()] = event.folder
    elif isinstance(event, Failed):
        report.failed.append(Failure(jobs[event.job].spec, event.traceback))
    elif isinstance(event, Lost):
        report.lost.append(event.reason)


def _print_failures(report: SweepReport, console: Console) -> None:
    for failure in report.failed:
        say(console, f"\n{failure.spec}: failed", style="bold red")
        say(console, failure.traceback.rstrip())
    if report.lost:
        lost = f"\nThe sweep lost {len(report.lost)} worker processes and took longer: {report.lost[-1]}"
        say(console, lost, style="bold")
    if report.failed:
        total = len(set(report.finished.values())) + len(report.failed)  # two specifications can be one run
        failed = f"\n{len(report.failed)} of {total} runs failed; the same command runs them again"
        say(console, failed, style="bold red")
