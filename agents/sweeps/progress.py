"""Progress of a sweep: one bar for all runs on a terminal, else one line per finished run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents.sweeps.jobs import Advanced, Event, Failed, Finished, Job, Lost


class SweepProgress(Progress):
    """Progress bar of a sweep; it advances with the expected work, so that a short run counts less than a long one.

    Args:
        console: where to print.
        jobs: the jobs of the sweep.
        skipped: number of runs that were finished before.
    """

    def __init__(self, console: Console, jobs: Sequence[Job], skipped: int) -> None:
        super().__init__(
            TextColumn("{task.fields[ended]} of {task.fields[runs]} runs{task.fields[failed]}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            # Seconds; long, because the expected work of a run is right only within a factor of two.
            speed_estimate_period=600,
        )
        self._jobs = jobs
        self._runs, self._ended, self._failed = len(jobs), 0, 0
        self._parts = [0.0] * len(jobs)
        self._work = max(sum(job.work for job in jobs), 1)
        self._began = time.monotonic()
        self._bar = self.add_task("", total=self._work, ended=0, runs=self._runs, failed="")
        if skipped:
            say(console, f"finished runs: {skipped}; to run: {self._runs}")

    def show(self, event: Event) -> None:
        """Show an event of a job or of a worker."""
        if isinstance(event, Lost):
            say(self.console, f"{event.reason}; the other workers run its jobs")
            return
        job = self._jobs[event.job]
        if isinstance(event, Advanced):
            # The event may arrive after the end of the job.
            self._parts[event.job] = max(self._parts[event.job], event.part)
        else:
            self._parts[event.job] = 1.0
            self._ended += 1
        count = f"{self._ended}/{self._runs}"
        if isinstance(event, Finished) and self.disable:
            say(self.console, f"{count} {job.spec}: {event.summary}{self._left()}")
        elif isinstance(event, Failed):
            self._failed += 1
            say(self.console, f"{count} {job.spec}: FAILED: {event.traceback.strip().splitlines()[-1]}")
        failed = f", {self._failed} failed" if self._failed else ""
        self.update(self._bar, completed=self._done(), ended=self._ended, failed=failed)

    def _done(self) -> float:
        return sum(part * job.work for part, job in zip(self._parts, self._jobs, strict=True))

    def _left(self) -> str:
        done = self._done()
        if self._ended == self._runs or done == 0:
            return ""
        seconds = (time.monotonic() - self._began) * (self._work - done) / done
        return f"; about {timedelta(seconds=round(seconds))} left"


def say(console: Console, *messages: str, style: str | None = None) -> None:
    """Print messages, one a line, without markup and without other line breaks."""
    for message in messages:
        console.print(message, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
