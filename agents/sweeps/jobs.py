"""Jobs: the runs that one process computes without a break.

The command line, the worker processes of this machine and those of a cluster all compute a run with `execute`.
"""

from __future__ import annotations

import json
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agents.analysis.measures import measure_of
from agents.catalogue.data_facts import split_keywords
from agents.catalogue.effort import training_examples
from agents.catalogue.recipes import recipe_for
from agents.catalogue.run_config import AgentConfig
from agents.catalogue.spec import RunSpec
from agents.learners.anytime import AnytimeAgent
from agents.runs import run as runs
from agents.runs import run_folder
from agents.runs.run import OnTick
from agents.sweeps import process_setup, run_index, trackers
from agents.sweeps.seed_batches import batch_size, run_batch
from agents.training import distributed
from alma_env import AlmaEnv, Ledger, Row

_MAX_ENVIRONMENTS = 2  # a data set takes some hundred megabytes
_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """The runs that one worker computes without a break.

    Attributes:
        specs: one run; or a batch of seeds, see `agents.sweeps.seed_batches`.
        work: the expected time, relative to other jobs, see `expected_work`.
        out: folder of the environments' folders of run folders, absolute.
        track: names of trackers.
    """

    specs: tuple[RunSpec, ...]
    work: int
    out: Path
    track: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advanced:
    """A job goes on; ``part`` is the finished fraction, from 0 to 1."""

    job: int
    part: float


@dataclass(frozen=True)
class Finished:
    """A job is finished: the folder of each run, and its result as text."""

    job: int
    folders: tuple[Path, ...]
    summaries: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """A job has failed, with a traceback or another reason."""

    job: int
    traceback: str


@dataclass(frozen=True)
class Lost:
    """A worker is lost, with a reason; the other workers run its jobs."""

    reason: str


Event = Advanced | Finished | Failed | Lost


class Environments:
    """A cache of the last environments; runs with equal keywords of the environment share one."""

    def __init__(self) -> None:
        self._cache: OrderedDict[str, AlmaEnv] = OrderedDict()

    def get(self, spec: RunSpec) -> AlmaEnv:
        """Return the environment of a run, and create it if it is not in the cache."""
        protocol, _ = split_keywords(spec.env, spec.settings)
        key = json.dumps([spec.env, protocol], sort_keys=True, default=repr)
        if key not in self._cache:
            while len(self._cache) >= _MAX_ENVIRONMENTS:  # before creating another one, to save memory
                self._cache.popitem(last=False)
            self._cache[key] = spec.make_env()
        self._cache.move_to_end(key)
        return self._cache[key]


def run_job(
    number: int, job: Job, environments: Environments, report: Callable[[Advanced], object]
) -> Finished | Failed:
    """Compute the runs of a job in this process; an error in a run is returned, not raised.

    ``number`` identifies the job in its events; ``report`` gets the progress, a few times per second.
    """
    try:
        env = environments.get(job.specs[0])
        process_setup.prepare(job.specs[0].threads, recipe_for(env.data.name).backbone)
        folders = _run(job, env, _Progress(lambda part: report(Advanced(number, part))))
        measure = measure_of(env.protocol())
        summaries = [measure.summary(run_folder.read_ledger(folder).score()) for folder in folders]
        return Finished(number, folders, tuple(summaries))
    except Exception:
        return Failed(number, traceback.format_exc())


def _run(job: Job, env: AlmaEnv, progress: _Progress) -> tuple[Path, ...]:
    agents = [spec.make_agent(env, progress.on_epoch) for spec in job.specs]
    configs = [runs.config_of(env, agent, spec.seed) for spec, agent in zip(job.specs, agents, strict=True)]
    folders = tuple(run_index.folder_of(job.out, config) for config in configs)
    progress.start(agents, examples_until(env, agents[0]))
    if len(job.specs) == 1:
        execute(job.specs[0], env, agents[0], folders[0], on_tick=progress.on_tick, track=job.track)
    else:
        for spec, folder in zip(job.specs, folders, strict=True):
            run_index.write_spec(folder, spec)
        run_batch(job.specs, folders, on_tick=lambda run, row: progress.on_tick(row, run))
    return folders


def execute(
    spec: RunSpec, env: AlmaEnv, agent: AnytimeAgent, folder: Path, *, on_tick: OnTick, track: Sequence[str] = ()
) -> Ledger:
    """Run an agent through its stream, and record its specification in the run folder.

    If a batch of seeds has finished the run, it is read. If a batch has started the run, it starts again, because a run
    outside the batch would not repeat its last bits.
    """
    config = runs.config_of(env, agent, spec.seed)
    run_index.require_record(folder, spec)
    if batch_size(folder, config) > 1:
        if run_folder.is_complete(folder):
            ledger = run_folder.read_ledger(folder)
            for row in ledger:
                on_tick(row)
            return ledger
        run_folder.clear(folder)
    if distributed.rank() == 0:
        run_index.write_spec(folder, spec)
    with trackers.following(track if distributed.rank() == 0 else (), folder, config) as track_row:

        def report(row: Row) -> None:
            on_tick(row)
            track_row(row)

        return runs.run(env, agent, spec.seed, folder, on_tick=report, record=spec.record)


def examples_until(env: AlmaEnv, agent: AnytimeAgent) -> Callable[..., int]:
    """Return a function of ``until=tick``: the training examples of a run up to this tick; with a policy, at most."""
    return partial(training_examples, env, AgentConfig(agent.config))


class _Progress:
    """Reports the finished fraction of a job, in training examples of its runs."""

    def __init__(self, report: Callable[[float], object]) -> None:
        self._report = report
        self._reported = time.monotonic()

    def start(self, agents: Sequence[AnytimeAgent], examples: Callable[..., int]) -> None:
        """Start with the agents of one run, or of several runs with streams of equal size."""
        self._agent, self._examples = agents[0], examples
        self._done = [0] * len(agents)

    def on_tick(self, row: Row, run: int = 0) -> None:
        self._total = max(self._examples(), 1)  # of one run; known after the stream is created, at tick 0
        self._done[run] = self._examples(until=row.tick)
        self._report_if_due()

    def on_epoch(self, epoch: int) -> None:
        """Add an epoch of a single run; the agents of a batch are not trained one by one."""
        self._done[0] += self._agent.training_on
        self._report_if_due()

    def _report_if_due(self) -> None:
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._report(min(sum(self._done) / (self._total * len(self._done)), 1.0))
