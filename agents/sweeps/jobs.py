"""Jobs: one run each, for a worker process.

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
from agents.catalogue import own_code
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.data_facts import split_keywords
from agents.catalogue.effort import training_examples
from agents.catalogue.recipes import recipe_for
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec
from agents.learners.anytime import AnytimeAgent
from agents.policies.progress import PolicyError
from agents.runs import load, run_folder
from agents.runs import run as runs
from agents.runs.run import OnTick
from agents.sweeps import process_setup, run_index, trackers
from agents.training import distributed
from agents.training.stage import LearnerError
from alma_env import AlmaEnv, AlmaError, Ledger, Row
from alma_env.errors import DivergedError, PredictorError, UnknownCostError, UnmeteredTrainingError

_MAX_ENVIRONMENTS = 2  # a data set takes some hundred megabytes
_REPORT_SECONDS = 0.2


class RunFailedError(AlmaError):
    """The learner, the policy or a predictor of a run broke a rule at a tick; other runs can go on."""


@dataclass(frozen=True)
class Job:
    """A run that one worker computes.

    Attributes:
        spec: the run.
        work: the expected time, relative to other jobs, see `expected_work`.
        out: folder of the environments' folders of run folders, absolute.
        track: names of trackers.
    """

    spec: RunSpec
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
    """A job is finished: the folder of its run, and the result as text."""

    job: int
    folder: Path
    summary: str


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
    """Compute the run of a job in this process; an error in the run is returned, not raised.

    ``number`` identifies the job in its events; ``report`` gets the progress, a few times per second.
    """
    try:
        spec, env = job.spec, environments.get(job.spec)
        process_setup.prepare(spec.threads, recipe_for(env.data.name).backbone)
        progress = _Progress(lambda part: report(Advanced(number, part)))
        agent = spec.make_agent(env, progress.on_epoch)
        progress.start(agent, examples_until(env, agent))
        folder = run_index.folder_of(job.out, runs.config_of(env, agent, spec.seed))
        ledger = execute(spec, env, agent, folder, on_tick=progress.on_tick, track=job.track)
        summary = measure_of(env.protocol()).summary(ledger.score())
        diverged = load.divergence(folder)
        return Finished(number, folder, f"{summary}; {diverged}" if diverged else summary)
    except AlmaError as error:
        return Failed(number, own_code.traceback_of(error) or str(error))
    except Exception as error:
        return Failed(number, own_code.traceback_of(error) or traceback.format_exc())


def _claim(spec: RunSpec, folder: Path, config: RunConfig) -> None:
    """Check that the run can go on in its folder, and write its specification.

    This is before a tracker opens, which would mark the run of another process as failed.
    """
    run_index.require_record(folder, spec)
    if run_folder.finished_rows(folder, config) is not None:
        run_index.note_spec(folder, spec)
        return
    with run_folder.locked(folder):
        run_index.write_spec(folder, spec)


def execute(
    spec: RunSpec, env: AlmaEnv, agent: AnytimeAgent, folder: Path, *, on_tick: OnTick, track: Sequence[str] = ()
) -> Ledger:
    """Run an agent through its stream, and record its specification in the run folder.

    Raises:
        RunFailedError: a predictor cannot be scored, its training was not metered or cannot be counted, the learner or
            the policy broke a rule, or the code of an agent of the user raised an error.
    """
    config = runs.config_of(env, agent, spec.seed)
    distributed.from_first(partial(_claim, spec, folder, config))
    with trackers.following(track if distributed.rank() == 0 else (), folder, config) as track_row:

        def report(row: Row) -> None:
            on_tick(row)
            track_row(row)

        try:
            return runs.run(env, agent, spec.seed, folder, on_tick=report, record=spec.record)
        except (PredictorError, UnmeteredTrainingError, UnknownCostError, LearnerError, PolicyError) as error:
            reason = str(error)
            if isinstance(error, DivergedError):  # its own remedy is for the author of a learner
                reason = f"{error.what}; {config.agent.divergence_remedy}"
            # From its cause: the text of the error would otherwise be reported twice.
            raise RunFailedError(f"the run failed at tick {agent.tick}: {reason}") from (error.__cause__ or error)
        except Exception as error:
            # With several ranks, the others may wait for this one in the same run: only the end of the process ends it.
            place = own_code.place_of(error)
            if distributed.ranks() == 1 and isinstance(error, MemoryError):
                raise RunFailedError(f"the run failed at tick {agent.tick}: {error or 'out of memory'}") from error
            if distributed.ranks() > 1 or place is None:
                raise
            # The traceback has the place and the text of the error. There is none if a check of this project raised it.
            with_traceback = own_code.traceback_of(error) is not None
            reason = f"{type(error).__name__} in the code of the agent" if with_traceback else f"{place}: {error}"
            raise RunFailedError(f"the run failed at tick {agent.tick}: {reason}") from error


def examples_until(env: AlmaEnv, agent: AnytimeAgent) -> Callable[..., int]:
    """Return a function of ``until=tick``: the training examples of a run up to this tick; with a policy, at most."""
    return partial(training_examples, env, AgentConfig(agent.config))


class _Progress:
    """Reports the finished fraction of a run, in training examples."""

    def __init__(self, report: Callable[[float], object]) -> None:
        self._report = report
        self._reported = time.monotonic()

    def start(self, agent: AnytimeAgent, examples: Callable[..., int]) -> None:
        self._agent, self._examples = agent, examples

    def on_tick(self, row: Row) -> None:
        self._total = max(self._examples(), 1)  # known after the stream is created, at tick 0
        self._done = self._examples(until=row.tick)
        self._report_if_due()

    def on_epoch(self, epoch: int) -> None:
        self._done += self._agent.training_on
        self._report_if_due()

    def _report_if_due(self) -> None:
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._report(min(self._done / self._total, 1.0))
