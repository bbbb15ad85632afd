"""Making runs, one after another, in whatever process is asked to: what is made once is used again.

The command line, the worker processes of this machine and those of a cluster all make a run with `execute`.
"""

from __future__ import annotations

import json
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agents import catalogue, parallel, process, run_folder, runs, trackers
from agents.anytime import AnytimeAgent
from agents.console import summary
from agents.experiments import folders
from agents.experiments.batched import run_batched
from agents.experiments.spec import RunSpec
from agents.recipes import recipe_for
from agents.report import measure_of
from agents.runs import OnTick
from agents.trainings import times_the_size, trainings
from alma_env import AlmaEnv, Ledger, Row

_KEPT = 2  # environments: a data set fills some hundred megabytes
_TOLD_EVERY = 0.2  # seconds
# A training example takes as long as the arithmetic of its network's parameters and of so many more: fitted to runs of
# single models, ensembles and uniform mixtures of MLPs, 3,000 to 280,000 parameters, on MNIST and one core.
_BESIDE_PARAMETERS = 30_000


@dataclass(frozen=True)
class Job:
    """What one worker makes without a break.

    Attributes:
        specs: one run; or several that differ in the seed alone, which are trained in one batched computation.
        work: how long they are expected to take beside other jobs, see `expected_work`.
        out: folder of the environments' folders of run folders, absolute.
        track: names of trackers.
    """

    specs: tuple[RunSpec, ...]
    work: int
    out: Path
    track: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advanced:
    """A job goes on; ``part`` of it is done, from 0 to 1."""

    job: int
    part: float


@dataclass(frozen=True)
class Finished:
    """A job is done: the folder of each run, and what came out of it in words."""

    job: int
    folders: tuple[Path, ...]
    summaries: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """A job is not done, and why."""

    job: int
    traceback: str


@dataclass(frozen=True)
class Lost:
    """A worker that no job can be given to any more, and why; the others make what it would have made."""

    reason: str


Event = Advanced | Finished | Failed | Lost


class Environments:
    """Environments by what they are made of; runs with the same share one, and the last few are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, AlmaEnv] = OrderedDict()

    def of(self, spec: RunSpec) -> AlmaEnv:
        """The environment of a run, made where there is none yet.

        Raises:
            ValueError, TypeError, AlmaError: as ``RunSpec.make_env``.
        """
        protocol, _ = catalogue.split_keywords(spec.env, spec.settings)
        key = json.dumps([spec.env, protocol], sort_keys=True, default=repr)
        if key not in self._kept:
            while len(self._kept) >= _KEPT:  # first, so that memory need not hold one more
                self._kept.popitem(last=False)
            self._kept[key] = spec.make_env()
        self._kept.move_to_end(key)
        return self._kept[key]


def perform(number: int, job: Job, environments: Environments, tell: Callable[[Advanced], object]) -> Finished | Failed:
    """Make the runs of a job in this process; what goes wrong in them is told, not raised.

    Args:
        number: of the job, by which it is told of.
        job: what to make.
        environments: those of this process.
        tell: told, a few times per second, how far it is.
    """
    made: tuple[Path, ...]
    try:
        env = environments.of(job.specs[0])
        process.prepare(job.specs[0].threads, recipe_for(env.data.name).backbone)
        if len(job.specs) > 1:
            made = _make_batch(number, job, env, tell)
        else:
            made = (_make(number, job, env, tell),)
        measure = measure_of(env.protocol())
        return Finished(number, made, tuple(summary(run_folder.read_ledger(folder), measure) for folder in made))
    except Exception:
        return Failed(number, traceback.format_exc())


def _make(number: int, job: Job, env: AlmaEnv, tell: Callable[[Advanced], object]) -> Path:
    (spec,) = job.specs
    far = _HowFar(lambda part: tell(Advanced(number, part)))
    agent = spec.make_agent(env, far.on_epoch)
    far.begin([agent], examples_until(env, agent, spec))
    folder = folders.folder_of(job.out, runs.describe(env, agent, spec.seed))
    execute(spec, env, agent, folder, on_tick=far.on_tick, track=job.track)
    return folder


def _make_batch(number: int, job: Job, env: AlmaEnv, tell: Callable[[Advanced], object]) -> tuple[Path, ...]:
    far = _HowFar(lambda part: tell(Advanced(number, part)))
    made = []
    agents = [spec.make_agent(env) for spec in job.specs]
    for spec, agent in zip(job.specs, agents, strict=True):
        made.append(folders.folder_of(job.out, runs.describe(env, agent, spec.seed)))
        folders.remember(made[-1], spec)
    far.begin(agents, examples_until(env, agents[0], job.specs[0]))
    run_batched(job.specs, made, on_tick=lambda run, row: far.on_tick(row, run))
    return tuple(made)


def execute(
    spec: RunSpec,
    env: AlmaEnv,
    agent: AnytimeAgent,
    folder: Path,
    *,
    on_tick: OnTick,
    track: Sequence[str] = (),
) -> Ledger:
    """Take a run's agent through its stream, into a folder in which it is found again.

    What a batch of seeds has finished there is read; what it has only begun, begins anew, since a run by itself would
    not repeat its last bits.

    Args:
        spec: the run.
        env: its environment.
        agent: its agent, which has not run.
        folder: of its configuration, see ``folders.folder_of``.
        on_tick: told after every tick.
        track: names of trackers to tell.

    Raises:
        ValueError, AlmaError: as ``agents.run``; or the run is to be recorded, and was begun without.
    """
    config = runs.describe(env, agent, spec.seed)
    folders.require_record(folder, spec)
    if _is_of_a_batch(folder, config):
        if run_folder.is_whole(folder):
            ledger = run_folder.read_ledger(folder)
            for row in ledger:
                on_tick(row)
            return ledger
        run_folder.clear(folder)
    if parallel.rank() == 0:
        folders.remember(folder, spec)
    with trackers.following(track if parallel.rank() == 0 else (), folder, config) as told:

        def tell(row: Row) -> None:
            on_tick(row)
            told(row)

        return runs.run(env, agent, spec.seed, folder, on_tick=tell, record=spec.record)


def _is_of_a_batch(folder: Path, config: dict[str, Any]) -> bool:
    if not (folder / "config.json").exists():
        return False
    saved = run_folder.read_config(folder)
    return saved.pop("batched", None) is not None and saved == json.loads(json.dumps(config))


def examples_until(env: AlmaEnv, agent: AnytimeAgent, spec: RunSpec) -> Callable[..., int]:
    """A function of ``until=tick``: the training examples of a run up to there; at most these, with a policy."""
    epochs = agent.config["stage"]["epochs"]
    replay = spec.replay or spec.trains_at_every_tick
    return partial(catalogue.training_examples, env, epochs, wait=spec.wait or 1, replay=replay)


def expected_work(env: AlmaEnv, agent: AnytimeAgent, spec: RunSpec) -> int:
    """What a whole run costs, in a unit of its own: good for comparing runs.

    Of a policy that decides as it goes, the most trainings are taken, and no growth.
    """
    stage, policy = agent.config["stage"], agent.config["policy"]
    fixed = isinstance(policy, Mapping) and "wait" in policy and "name" not in policy
    backbone: str = agent.config["backbone"]
    parameters = sum(parameter.numel() for parameter in agent.predictor.parameters())
    work = 0.0
    for training in trainings(
        env.ticks,
        spec.wait or 1,
        replay=spec.replay or spec.trains_at_every_tick,
        growth=policy["growth"] if fixed else "never",
    ):
        if stage["updates"] is None:
            examples = training.mega_batches * env.examples_per_tick * stage["epochs"]
        else:  # a text's examples per tick would be known only once its stream is made
            examples = stage["updates"] * stage["batch_size"]
        size = parameters * times_the_size(agent.config, backbone, training.grown)
        work += examples * (size + _BESIDE_PARAMETERS)
    return max(round(work), 1)


class _HowFar:
    """Which part of a job is done, by the training examples of its runs, told now and then."""

    def __init__(self, tell: Callable[[float], object]) -> None:
        self._tell = tell
        self._told = time.monotonic()
        self._agents: Sequence[AnytimeAgent] = ()
        self._total: int | None = None  # of one run; known when the stream is

    def begin(self, agents: Sequence[AnytimeAgent], examples: Callable[..., int]) -> None:
        """Of one run, or of several that go through streams of the same size."""
        self._agents, self._examples = agents, examples
        self._done = [0] * len(agents)

    def on_tick(self, row: Row, run: int = 0) -> None:
        if self._total is None:
            self._total = max(self._examples(), 1)
        self._done[run] = self._examples(until=row.tick)
        self._say()

    def on_epoch(self, epoch: int) -> None:
        """Of a lone run; a batch has no agent that trains by itself."""
        if self._agents:
            self._done[0] += self._agents[0].training_on
            self._say()

    def _say(self) -> None:
        if self._total is not None and time.monotonic() - self._told > _TOLD_EVERY:
            self._told = time.monotonic()
            self._tell(min(sum(self._done) / (self._total * len(self._done)), 1.0))
