"""Many runs: those that are finished are skipped, the others spread over processes or machines."""

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

from agents import finished, run_folder, trackers
from agents.experiments import folders, grid, local, ray_cluster
from agents.experiments.batched import can_batch
from agents.experiments.plan import Pending, Plan, plan
from agents.experiments.progress import SweepProgress
from agents.experiments.spec import RunSpec
from agents.experiments.work import Event, Failed, Finished, Job, Lost
from agents.finished import FinishedRun


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why: the traceback, or how its process ended."""

    spec: RunSpec
    traceback: str


@dataclass
class SweepReport:
    """What became of a sweep.

    Attributes:
        finished: the folder of every finished run, by ``RunSpec.digest()``.
        failed: the others.
        skipped: how many were finished before.
        lost: why worker processes were lost that could not be started again; the others made their runs.
    """

    finished: dict[str, Path] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    skipped: int = 0
    lost: list[str] = field(default_factory=list)

    def runs(self) -> list[FinishedRun]:
        """The finished runs, read from their folders."""
        return [run for folder in dict.fromkeys(self.finished.values()) for run in finished.find(folder)[0]]


def sweep(
    runs: Sequence[RunSpec] | Mapping[str, Any] | str | Path,
    out: str | Path = "runs",
    *,
    workers: int | None = None,
    threads: int | None = None,
    per_gpu: int = 0,
    ray: str | None = None,
    batch_seeds: bool = False,
    fresh: bool = False,
    track: Sequence[str] = (),
    console: Console | None = None,
) -> SweepReport:
    """Make the runs of a grid that are not finished yet, each into a folder of its own; ``alma sweep`` from Python.

    A run that fails does not stop the others. One that was stopped goes on from its checkpoint. In a script, call this
    below ``if __name__ == "__main__":``, since worker processes import the script.

    Args:
        runs: the runs; or a grid of them, see ``agents.experiments.grid``, as a table or the path of a TOML file.
        out: folder of the environments' folders of run folders.
        workers: processes of this machine; by default as many as fill its cores, or one on each GPU.
        threads: of PyTorch in each process, in place of the runs' own number.
        per_gpu: so many processes on each GPU of this machine, in place of ``workers``.
        ray: give the runs to a Ray cluster: its address, ``auto``, ``local`` or ``local:CORES``.
        batch_seeds: train runs that differ in the seed alone in one batched computation, where that is possible.
        fresh: delete what the runs have written before, finished or not.
        track: names of experiment trackers.
        console: where progress and failures are printed; None: standard output.

    Returns:
        What is finished, and what failed.

    Raises:
        ValueError, TypeError, AlmaError: a run cannot be made, or an option is wrong; told before anything runs.
        WorkerError: no worker process can be started for what is left.
    """
    console = Console() if console is None else console
    specs = _specs(runs)
    if threads is not None:
        specs = [dataclasses.replace(spec, threads=threads) for spec in specs]
    _require_threads(specs)
    trackers.require(track)
    at = Path(out).resolve()
    planned = plan(specs, at, fresh=fresh)
    report = SweepReport(dict(planned.finished), skipped=len(planned.finished))
    jobs = _jobs(planned, at, tuple(track), batch_seeds=batch_seeds)
    if jobs:
        at.mkdir(parents=True, exist_ok=True)  # told once, not by every run
        events = _backend(jobs, workers, per_gpu, ray)
        if fresh:
            made_before = folders.asked_for(at, specs)  # also by machines where they lie in another folder
            run_folder.clear(*dict.fromkeys([*(one.folder for one in planned.pending.values()), *made_before]))
        try:
            with closing(events), SweepProgress(console, jobs, report.skipped) as progress:
                for event in events:
                    progress.told(event)
                    _note(report, jobs, event)
        finally:  # also where it is stopped
            _tell_failures(report, console)
    report.finished |= {digest: report.finished[one] for digest, one in planned.same.items() if one in report.finished}
    return report


def _specs(runs: Sequence[RunSpec] | Mapping[str, Any] | str | Path) -> list[RunSpec]:
    if isinstance(runs, Mapping):
        return grid.expand(runs)
    return grid.read(Path(runs)) if isinstance(runs, str | Path) else list(runs)


def _require_threads(specs: Sequence[RunSpec]) -> None:
    for spec in specs:
        if spec.threads < 1:
            raise ValueError(f"{spec}: threads={spec.threads}: at least 1 is needed")


def _jobs(planned: Plan, out: Path, track: tuple[str, ...], *, batch_seeds: bool) -> list[Job]:
    """The longest first, so that who has nothing to do at the end waits for a short one; of equals more trainings."""
    groups: list[list[Pending]] = [[pending] for pending in planned.pending.values()]
    if batch_seeds and planned.pending:
        if track:
            raise ValueError(f"--track {' '.join(track)} beside --batch-seeds: give one of the two")
        together = can_batch([pending.spec for pending in planned.pending.values()])
        groups = [[planned.pending[spec.digest()] for spec in group] for group in together]
    jobs = [Job(tuple(p.spec for p in group), sum(p.work for p in group), out, track) for group in groups if group]
    return sorted(jobs, key=lambda job: (-job.work, job.specs[0].wait or math.inf))


def _backend(jobs: Sequence[Job], workers: int | None, per_gpu: int, ray: str | None) -> Generator[Event, None, None]:
    if ray is not None:
        if workers is not None:
            raise ValueError(
                f"--workers {workers} beside --ray {ray}: a cluster has its own; write --ray local:{workers}"
            )
        return ray_cluster.carry_out(jobs, ray, per_gpu=per_gpu)
    if workers is None and not per_gpu and any(spec.device != "cpu" for job in jobs for spec in job.specs):
        per_gpu = min(torch.cuda.device_count(), 1)  # as many runs as there are cores would fight for the GPU's memory
    threads = max(spec.threads for job in jobs for spec in job.specs)
    return local.carry_out(jobs, local.places(workers, per_gpu, threads))


def _note(report: SweepReport, jobs: Sequence[Job], event: Event) -> None:
    if isinstance(event, Finished):
        digests = [spec.digest() for spec in jobs[event.job].specs]
        report.finished |= dict(zip(digests, event.folders, strict=True))
    elif isinstance(event, Failed):
        report.failed += [Failure(spec, event.traceback) for spec in jobs[event.job].specs]
    elif isinstance(event, Lost):
        report.lost.append(event.reason)


def _tell_failures(report: SweepReport, console: Console) -> None:
    def say(message: str, style: str = "") -> None:
        console.print(message, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)

    for failure in report.failed:
        say(f"\n{failure.spec}: failed", "bold red")
        say(failure.traceback.rstrip())
    if report.lost:
        say(f"\n{len(report.lost)} worker processes were lost, so that the rest took longer: {report.lost[-1]}", "bold")
    if report.failed:
        total = len(report.finished) + len(report.failed)
        say(f"\n{len(report.failed)} of {total} runs failed; the same command makes them again", "bold red")
