"""Batches of seeds: runs that differ only in their seeds, tick by tick; each stage trains their networks together.

Each run has its own environment, agent and folder, and is charged only for its own work. Its results equal those of a
single run, to rounding. A batch continues from the last checkpoints of its runs, which all have the same tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

import alma_env
from agents.catalogue.build import choose_device
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve
from agents.learners.anytime import AnytimeAgent
from agents.learners.seed_batch import BatchedLearner, require_equal_settings, train_batch
from agents.runs import run as runs
from agents.runs import run_folder
from agents.runs.run_folder import RunFolder
from agents.training import distributed
from agents.training.members import WIDEST_TOGETHER
from alma_env import AlmaEnv, Row
from alma_env.registration import PROTOCOLS

OnTick = Callable[[int, Row], None]  # called with the number of the run in the batch

# The data of all runs of a batch are in memory at once, so a batch has fewer runs if each run has much data.
MOST_RUNS = 32
MOST_RUNS_ON_MUCH_DATA = 8
MUCH_DATA = 0.1  # fraction of a data set


def batches_of(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Divide runs into batches for `run_batch`; a run that cannot be in a batch is a batch of one.

    A batch holds runs of SM, Ens or UMix with a fixed waiting time that differ only in their seeds, with an MLP, or
    with a VGG19 if that is faster.
    """
    batches: dict[str, list[list[RunSpec]]] = {}
    for spec in specs:
        same_setting = batches.setdefault(spec.with_seed(0).digest(), [])
        most = _most_runs(spec)
        for batch in same_setting:
            if len(batch) < most and all(spec.seed != other.seed for other in batch):
                batch.append(spec)
                break
        else:
            same_setting.append([spec])
    return [batch for same_setting in batches.values() for batch in same_setting]


def _most_runs(spec: RunSpec) -> int:
    """Return the largest number of runs in a batch with this setting."""
    settings = spec.settings
    single = spec.policy is not None or settings.get("together") is False or distributed.ranks() > 1
    single |= spec.agent not in ("sm", "ens", "umix") or spec.env not in PROTOCOLS
    if single or settings.get("patience") is not None or settings.get("clip") is not None:
        return 1
    config = resolve(spec, spec.known_facts())
    device = choose_device("auto").type if spec.device == "auto" else spec.device
    if config.agent.backbone == "vgg19" and config.get("width") > WIDEST_TOGETHER and device == "cpu":
        return 1
    much = spec.replay or (spec.wait or 1) > MUCH_DATA * config.ticks
    return MOST_RUNS_ON_MUCH_DATA if much else MOST_RUNS


def batch_size(folder: Path, config: RunConfig) -> int:
    """Return the number of runs in the batch that started a run in a folder; 0 if the folder does not hold this run."""
    if not (folder / "config.json").exists():
        return 0
    saved = run_folder.read_config(folder)
    same_run = saved.without_batch().to_dict() == config.without_batch().to_dict()
    return int(saved.computation.get("batched", 1)) if same_run else 0


@dataclass(frozen=True)
class _Run:
    spec: RunSpec
    env: AlmaEnv
    agent: AnytimeAgent
    folder: Path
    on_tick: runs.OnTick

    @property
    def learner(self) -> BatchedLearner:
        return cast("BatchedLearner", self.agent.learner)

    def config(self, batched: int = 1) -> RunConfig:
        return runs.config_of(self.env, self.agent, self.spec.seed, batched=batched)

    def report(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.on_tick(row)


def run_batch(specs: Sequence[RunSpec], folders: Sequence[str | Path], *, on_tick: OnTick | None = None) -> None:
    """Compute the runs of one batch of `batches_of`, each into its folder.

    Finished runs are read. The others continue together if a batch with the same number of runs has started them.
    Otherwise they start again, because their last bits depend on the number of runs in the batch.

    Args:
        specs: at least one run; the runs differ only in their seeds.
        folders: the folder of each run.
        on_tick: called with every row of every run, including rows that are read.
    """
    if not specs or len(specs) != len(folders):
        raise ValueError(f"{len(specs)} runs and {len(folders)} folders: give at least one run, and a folder for each")
    pending = []
    for number, (spec, folder) in enumerate(zip(specs, folders, strict=True)):
        env = spec.make_env()
        report = (lambda row: None) if on_tick is None else partial(on_tick, number)
        run = _Run(spec, env, spec.make_agent(env), Path(folder), report)
        if batch_size(run.folder, run.config()) > 0 and run_folder.is_complete(run.folder):
            run.report(run_folder.read_ledger(run.folder))
        else:
            pending.append(run)
    for run in pending:
        _clear_other_batch(run, len(pending))
    if len(pending) == 1:
        runs.run(run.env, run.agent, run.spec.seed, run.folder, on_tick=run.on_tick, record=run.spec.record)
    elif pending:
        require_equal_settings([run.learner for run in pending])
        with ExitStack() as locks:
            for run in pending:
                locks.enter_context(run_folder.locked(run.folder))
            _run_together(pending)


def _clear_other_batch(run: _Run, batched: int) -> None:
    """Delete a started run if its batch had another number of runs."""
    if batch_size(run.folder, run.config()) not in (0, batched):
        with run_folder.locked(run.folder):
            for name in ("checkpoint.pt", "stages.jsonl", "ledger.jsonl", "config.json"):
                (run.folder / name).unlink(missing_ok=True)


def _run_together(batch: Sequence[_Run]) -> None:
    folders = [RunFolder(run.folder, run.config(len(batch))) for run in batch]
    for run, files, state in zip(batch, folders, _states_of_one_tick(folders), strict=True):
        runs.start(run.env, run.agent, run.spec.seed, files, state)
        run.report(run.env.ledger)
    saved = time.monotonic()
    while not batch[0].env.done:
        for run, files, predictor in zip(batch, folders, _train(batch), strict=True):
            runs.step(run.env, run.agent, predictor, files, run.on_tick, run.spec.record)
        if batch[0].env.done or time.monotonic() - saved >= run_folder.CHECKPOINT_SECONDS:
            commits = [files.prepare_checkpoint(run.env, run.agent) for run, files in zip(batch, folders, strict=True)]
            for commit in commits:  # directly one after another, so that the checkpoints have the same tick
                commit()
            saved = time.monotonic()
    for run, files in zip(batch, folders, strict=True):
        files.end(run.env)


def _train(batch: Sequence[_Run]) -> Sequence[nn.Module | None]:
    """Return the predictor that each run deploys at this tick; None if the runs wait. All runs decide the same."""
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


def _states_of_one_tick(folders: Sequence[RunFolder]) -> list[dict[str, Any]] | list[None]:
    """Return the states in the checkpoints; None for all runs if the process was killed between two checkpoints."""
    states = [state for files in folders if (state := files.load_checkpoint()) is not None]
    one_tick = len({state["agent"]["tick"] for state in states}) == 1
    return states if one_tick and len(states) == len(folders) else [None] * len(folders)
