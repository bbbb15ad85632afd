"""Runs that differ in their seeds alone, made in lock-step: at each training their networks are trained in one batch.

Each run has its own environment, its own agent and its own folder, and is charged for its own work only, as if it were
made by itself; the numbers are those that it would have then, to rounding. What a run's folder holds is what
`agents.run_folder` says; a batch goes on from the last checkpoints of its runs, which are those of one tick.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

import alma_env
from agents import parallel, run_folder, runs
from agents.anytime import AnytimeAgent
from agents.batched import BatchedLearner, require_alike, train_batch
from agents.catalogue import choose_device
from agents.experiments.spec import RunSpec
from agents.members import WIDEST_TOGETHER
from agents.recipes import recipe_for
from agents.run_folder import RunFolder
from alma_env import AlmaEnv, Row
from alma_env.registration import PROTOCOLS

OnTick = Callable[[int, Row], None]  # told the number of the run among those of the batch

# The data of all runs of a batch are in memory at once: much of a data set is held for fewer runs than little of it.
MOST_RUNS = 32
MOST_RUNS_ON_MUCH_DATA = 8
MUCH_DATA = 0.1  # of a data set


def can_batch(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """The runs in groups, each of which `run_batched` can make; one that cannot be batched is a group of its own.

    In a batch are runs of SM, Ens or UMix on an MLP, or on a VGG19 where that is faster, with a fixed waiting time,
    which differ in their seeds alone.
    """
    groups: dict[str, list[list[RunSpec]]] = {}
    for spec in specs:
        alike = groups.setdefault(json.dumps(spec.as_dict() | {"seed": None}, sort_keys=True), [])
        most = _most_runs(spec)
        for group in alike:
            if len(group) < most and all(spec.seed != other.seed for other in group):
                group.append(spec)
                break
        else:
            alike.append([spec])
    return [group for alike in groups.values() for group in alike]


def _most_runs(spec: RunSpec) -> int:
    """How many runs like this one a batch may have."""
    settings = spec.settings
    by_itself = spec.policy is not None or settings.get("together") is False or parallel.ranks() > 1
    if by_itself or spec.agent not in ("sm", "ens", "umix") or spec.env not in PROTOCOLS:
        return 1
    if settings.get("patience") is not None or settings.get("clip") is not None:
        return 1
    recipe, ticks = recipe_for(PROTOCOLS[spec.env]["data"]), settings.get("ticks", PROTOCOLS[spec.env]["ticks"])
    width = recipe.width if spec.width is None else spec.width
    device = choose_device("auto").type if spec.device == "auto" else spec.device
    if recipe.backbone == "vgg19" and width > WIDEST_TOGETHER and device == "cpu":
        return 1
    much = spec.replay or (spec.wait or 1) > MUCH_DATA * ticks
    return MOST_RUNS_ON_MUCH_DATA if much else MOST_RUNS


@dataclass(frozen=True)
class _Run:
    spec: RunSpec
    env: AlmaEnv
    agent: AnytimeAgent
    folder: Path
    on_tick: runs.OnTick | None

    @property
    def learner(self) -> BatchedLearner:
        return cast("BatchedLearner", self.agent.learner)

    def config(self, batched: int) -> dict[str, Any]:
        return runs.describe(self.env, self.agent, self.spec.seed, batched=batched)

    def tell(self, rows: Iterable[Row]) -> None:
        if self.on_tick is not None:
            for row in rows:
                self.on_tick(row)


def run_batched(specs: Sequence[RunSpec], folders: Sequence[str | Path], *, on_tick: OnTick | None = None) -> None:
    """Make the runs of one group of `can_batch`, each into its folder.

    Runs that are finished are read. The others go on together where a batch of as many has begun them, and else begin
    anew, since in other company they would not repeat their last bits.

    Args:
        specs: at least one run; they differ in their seeds alone.
        folders: one for each.
        on_tick: told after every tick of every run, also of ticks that are read.

    Raises:
        ValueError: the runs cannot be made in one batch.
        RunMismatchError: a folder holds another run, or one that does not repeat.
        FolderInUseError: another process writes to a folder.
    """
    if not specs or len(specs) != len(folders):
        raise ValueError(f"{len(specs)} runs and {len(folders)} folders: give at least one run, and a folder for each")
    waiting = []
    for number, (spec, folder) in enumerate(zip(specs, folders, strict=True)):
        env = spec.make_env()
        told = None if on_tick is None else partial(on_tick, number)
        run = _Run(spec, env, spec.make_agent(env), Path(folder), told)
        if _is_finished(run):
            run.tell(run_folder.read_ledger(run.folder))
        else:
            waiting.append(run)
    for run in waiting:
        _begin_anew_in_other_company(run, len(waiting))
    if len(waiting) == 1:
        runs.run(run.env, run.agent, run.spec.seed, run.folder, on_tick=run.on_tick, record=run.spec.record)
    elif waiting:
        require_alike([run.learner for run in waiting])
        with ExitStack() as locks:
            for run in waiting:
                locks.enter_context(run_folder.locked(run.folder))
            _run_together(waiting)


def _run_together(batch: Sequence[_Run]) -> None:
    files = [RunFolder(run.folder, run.config(len(batch))) for run in batch]
    for run, its_files, state in zip(batch, files, _states_of_one_tick(files), strict=True):
        runs.begin(run.env, run.agent, run.spec.seed, its_files, state)
        run.tell(run.env.ledger)
    saved = time.monotonic()
    while not batch[0].env.done:
        for run, its_files, predictor in zip(batch, files, _train(batch), strict=True):
            runs.step(run.env, run.agent, predictor, its_files, run.on_tick, run.spec.record)
        if batch[0].env.done or time.monotonic() - saved >= run_folder.CHECKPOINT_SECONDS:
            prepared = [its.prepare_checkpoint(run.env, run.agent) for run, its in zip(batch, files, strict=True)]
            for put in prepared:  # all at once: they belong to one tick
                put()
            saved = time.monotonic()
    for run, its_files in zip(batch, files, strict=True):
        its_files.end(run.env)


def _train(batch: Sequence[_Run]) -> Sequence[nn.Module | None]:
    """What each run deploys at this tick: None while they wait, which they all do at the same ticks."""
    for run in batch:
        run.agent.gather(run.env.observation())
    first = batch[0].agent
    decision = first.policy(first.progress())
    if not decision.train:
        return [None] * len(batch)
    train, valid = zip(*(run.agent.examples(decision) for run in batch), strict=True)
    with alma_env.shared([run.env.meter for run in batch]) as shares:
        reports = train_batch([run.learner for run in batch], train, valid)
        for run in batch:
            shares.give(run.env.meter, run.agent.predictor)
    return [run.agent.trained(decision, report) for run, report in zip(batch, reports, strict=True)]


def _states_of_one_tick(files: Sequence[RunFolder]) -> list[dict[str, Any]] | list[None]:
    """The checkpoints; none where a kill came between them: the runs then repeat what is in their ledgers."""
    states = [its.load_checkpoint() for its in files]
    found = [state for state in states if state is not None]
    one_tick = len({state["agent"]["tick"] for state in found}) == 1
    return found if one_tick and len(found) == len(files) else [None] * len(files)


def _is_finished(run: _Run) -> bool:
    """Whether the folder holds the whole run, made in a batch of any size or by itself."""
    there = (run.folder / "ledger.jsonl").exists()
    return there and _same_but_for_company(run) and run_folder.is_whole(run.folder)


def _begin_anew_in_other_company(run: _Run, batched: int) -> None:
    saved = run.folder / "config.json"
    if (
        saved.exists()
        and _same_but_for_company(run)
        and run_folder.read_config(run.folder) != _plain(run.config(batched))
    ):
        with run_folder.locked(run.folder):  # another process may be making it
            for name in ("checkpoint.pt", "stages.jsonl", "ledger.jsonl", "config.json"):
                (run.folder / name).unlink(missing_ok=True)


def _same_but_for_company(run: _Run) -> bool:
    return run_folder.read_config(run.folder) | {"batched": 1} == _plain(run.config(1)) | {"batched": 1}


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain
