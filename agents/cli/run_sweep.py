"""``alma run``, one run after another in this process with a bar each, and ``alma sweep``, many runs at once."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agents import parallel, process, report, run_folder, runs, trackers
from agents.console import RunProgress, draw_curves, say
from agents.experiments import folders, grid
from agents.experiments.plan import plan
from agents.experiments.spec import RunSpec
from agents.experiments.sweep import SweepReport, sweep
from agents.experiments.work import Environments, examples_until, execute
from agents.methods import method_for
from agents.policy_specs import policy_from
from agents.recipes import recipe_for
from agents.words import key_values
from alma_env import Ledger

DEFAULT_ENV = "Digits-ALMA-v0"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``run`` and ``sweep`` to the commands of ``alma``."""
    run = commands.add_parser("run", help="take an agent through a stream, for several waits and seeds")
    run.set_defaults(command=_run)
    run.add_argument("env", nargs="?", default=DEFAULT_ENV, help=f"environment id, default {DEFAULT_ENV}")
    run.add_argument("--agent", default="sm", help="agent id (see `alma agents`), default sm")
    _add_combinations(run)
    run.add_argument("--seeds", type=int, nargs="+", default=[0], help="run seeds, default 0")
    run.add_argument("--replay", action="store_true", help="train on everything seen so far")
    run.add_argument("--engine", default="auto", choices=["auto", "plain", "compiled"], help="how to train")
    run.add_argument("--device", default="auto", help="cpu, cuda, …; default auto")
    run.add_argument("--threads", type=int, help="PyTorch threads; default: 1 for an MLP, else all cores")
    run.add_argument("--record", action="store_true", help=_RECORD)
    _add_folder_options(run)

    many = commands.add_parser(
        "sweep", help="make the runs of a grid, on all cores or a cluster; what is done is skipped"
    )
    many.set_defaults(command=_sweep)
    many.add_argument("file", nargs="?", type=Path, help="a grid as TOML, in place of the options that describe one")
    described = many.add_argument_group("the grid: every combination")
    described.add_argument("--env", nargs="+", help="environment ids")
    described.add_argument("--agent", nargs="+", help="agent ids, default sm")
    _add_combinations(described)
    described.add_argument("--seeds", type=int, nargs="+", help="run seeds, default 0")
    described.add_argument(
        "--replay", action="append_const", const=True, help="train on everything seen so far; with --no-replay: both"
    )
    described.add_argument("--no-replay", dest="replay", action="append_const", const=False, help="the default")
    described.add_argument("--engine", nargs="+", choices=["auto", "plain", "compiled"], help="how to train")
    described.add_argument("--device", nargs="+", help="cpu, cuda, …; default auto")
    described.add_argument("--record", action="store_const", const=True, help=_RECORD)
    many.add_argument("--dry-run", action="store_true", help="list the runs, and which of them are done; make none")
    add_execution_options(many)


_RECORD = (
    "also score on the validation parts of the whole stream, as `alma surrogate fit` needs for policies that are not "
    "tuned on the test set"
)


def _add_combinations(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--width", type=int, nargs="+", help="units or channels; default: the recipe's")
    parser.add_argument("--wait", type=int, nargs="+", help="waiting times in mega-batches; default: the recipe's")
    parser.add_argument(
        "--policy",
        nargs="+",
        default=[],
        help="when to train, in place of --wait: doubling, validation, random, budget, with NAME:field=value,… "
        "where it should differ from its default, or a learned policy PATH.zip",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="any hyper-parameter of the agent or keyword of the environment, e.g. epochs=20 ticks=50; for text its "
        "files: train=FOLDER valid=FILE test=FILE vocabulary_size=8000 sequence_length=128; `alma sweep` goes through "
        "a list, epochs=[5,20]",
    )


def _add_folder_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of run folders, default runs/")
    parser.add_argument("--fresh", action="store_true", help="delete these runs' folders first, finished or not")
    parser.add_argument(
        "--track",
        nargs="+",
        default=[],
        metavar="TRACKER",
        help="also tell experiment trackers: tensorboard, wandb, mlflow",
    )


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where and how the runs of a grid are made; ``carry_out`` reads them."""
    execution = parser.add_argument_group("how they are made")
    execution.add_argument("--workers", type=int, help="processes of this machine; default: as many as fill its cores")
    execution.add_argument("--threads", type=int, help="PyTorch threads of each process, default 1")
    execution.add_argument("--per-gpu", type=int, default=0, metavar="K", help="K runs at once on each GPU")
    execution.add_argument(
        "--ray",
        metavar="auto|ADDRESS|local[:CORES]",
        help="give the runs to a Ray cluster: to the one of RAY_ADDRESS or of this machine (auto), the one at ADDRESS, "
        "or one that is started for them (local)",
    )
    execution.add_argument(
        "--batch-seeds",
        action="store_true",
        help="train runs that differ in the seed alone in one batched computation, where that is possible",
    )
    _add_folder_options(execution)


def carry_out(specs: Sequence[RunSpec], options: argparse.Namespace, console: Console) -> SweepReport:
    """Make runs as the options of ``add_execution_options`` say.

    Raises:
        ValueError, TypeError, AlmaError, WorkerError: as ``agents.sweep``.
    """
    return sweep(
        specs,
        options.out,
        workers=options.workers,
        threads=options.threads,
        per_gpu=options.per_gpu,
        ray=options.ray,
        batch_seeds=options.batch_seeds,
        fresh=options.fresh,
        track=options.track,
        console=console,
    )


def _sweep(options: argparse.Namespace, console: Console) -> int:
    specs = grid.read(options.file) if options.file and not _given(options) else grid.expand(_table(options))
    if options.dry_run:
        _list(specs, options, console)
        return 0
    report = carry_out(specs, options, console)
    before = f", {report.skipped} of them from before" if report.skipped else ""
    count = f"{len(report.finished)} run{'s are' if len(report.finished) != 1 else ' is'}"
    say(console, f"{count} finished{before}; see {options.out}/")
    return 1 if report.failed else 0


def _given(options: argparse.Namespace) -> dict[str, Any]:
    keys = ("env", "agent", "width", "wait", "policy", "seeds", "replay", "engine", "device", "record", "set")
    return {key: getattr(options, key) for key in keys if getattr(options, key)}


def _table(options: argparse.Namespace) -> dict[str, Any]:
    """The grid that options describe, as a table."""
    table = _given(options)
    if options.file:
        first = next(iter(table)).replace("_", "-")
        raise ValueError(f"--{first} beside {options.file}: describe the grid in the file, or by options alone")
    if "env" not in table:
        raise ValueError("no grid: give a TOML file, or options: alma sweep --env Digits-ALMA-v0 --wait 5 20")
    for key in ("env", "agent", "width", "wait", "policy", "seeds"):
        grid.require_distinct(f"--{key}", table.get(key, []))
    return table | {"set": _settings(options.set)}


def _list(specs: Sequence[RunSpec], options: argparse.Namespace, console: Console) -> None:
    if options.threads is not None:
        specs = [dataclasses.replace(spec, threads=options.threads) for spec in specs]
    planned = plan(specs, options.out, fresh=options.fresh)
    lines, begun = [], 0
    for digest, spec in {spec.digest(): spec for spec in specs}.items():
        of = planned.same.get(digest, digest)
        if of in planned.finished:
            lines.append(f"done     {spec}  ({planned.finished[of]})")
            continue
        answered = 0 if options.fresh else folders.rows_in(planned.pending[of].folder)
        begun += answered > 0
        lines.append(f"tick {answered - 1:<3} {spec}" if answered else f"to make  {spec}")
    say(console, "\n".join(lines))
    done = sum(line.startswith("done") for line in lines)
    say(
        console,
        f"{len(lines)} run{'s' * (len(lines) != 1)}: {done} done, {begun} begun, {len(lines) - done - begun} to make",
    )


def _run(options: argparse.Namespace, console: Console) -> int:
    with parallel.joined(options.device):
        return _run_all(options, console if parallel.rank() == 0 else Console(quiet=True))


def _run_all(options: argparse.Namespace, console: Console) -> int:
    settings = _settings(options.set)
    env = Environments().of(RunSpec(options.env, settings=settings))
    measure = report.measure_of(env.protocol())
    backbone = recipe_for(env.data.name).backbone
    process.prepare(options.threads, backbone)
    specs = [dataclasses.replace(one, threads=torch.get_num_threads()) for one in _specs(options, settings, backbone)]
    trackers.require(options.track)
    # All agents are made once, and dropped, before the first run, so that a mistake in the last is told before hours
    # of work; and before --fresh deletes anything.
    configs = [runs.describe(env, spec.make_agent(env), spec.seed) for spec in specs]
    labels = report.labels(configs)
    paths = [folders.folder_of(options.out, config) for config in configs]
    if options.fresh:  # all of them first: whoever stops the first run goes on without --fresh
        parallel.from_first(partial(run_folder.clear, *paths))
    groups: dict[str, list[Ledger]] = {}
    with RunProgress(console, measure) as progress:
        for spec, path, label in zip(specs, paths, labels, strict=True):
            agent = spec.make_agent(env, progress.on_epoch)
            on_tick = progress.begin(f"{label}, seed {spec.seed}", agent, examples_until(env, agent, spec))
            ledger = execute(spec, env, agent, path, on_tick=on_tick, track=options.track)
            progress.end(ledger)
            groups.setdefault(label, []).append(ledger)
    if parallel.rank() > 0:
        return 0
    console.print(report.table(groups, title=f"{options.env}, {env.ticks} mega-batches", measure=measure))
    folder = options.out / options.env
    say(console, f"Runs are in {folder}/")
    draw_curves(console, groups, folder, f"{options.env}: {measure.name} at every tick", measure)
    return 0


def _specs(options: argparse.Namespace, settings: dict[str, Any], backbone: str) -> list[RunSpec]:
    """The runs that options of ``alma run`` describe."""
    for key in ("width", "wait", "policy", "seeds"):
        grid.require_distinct(f"--{key}", getattr(options, key) or [])
    if options.policy:
        for option, value in (("--wait", options.wait), ("--replay", options.replay)):
            if value:
                raise ValueError(
                    f"{option} beside --policy {' '.join(options.policy)}: a policy says when to train, and on what; "
                    "give one of the two, with replay as --policy doubling:replay=true"
                )
        for word in options.policy:
            policy_from(word, grows=method_for(options.agent, backbone).grows)
    lists = {key: getattr(options, key) for key in ("width", "wait", "policy") if getattr(options, key)}
    one = {key: getattr(options, key) for key in ("env", "agent", "replay", "seeds", "engine", "device", "record")}
    return grid.expand({**lists, **one, "set": {key: [value] for key, value in settings.items()}})


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    values = key_values(pairs)
    for key, value in values.items():
        if key in _OPTIONS:
            raise ValueError(
                f"--set {key}={value}: {key} has an option of its own; write {_OPTIONS[key].format(value)}"
            )
    return values


# What --set would say twice, and how it is written instead.
_OPTIONS = {
    "id": "--agent {}",
    "agent": "--agent {}",
    "env": "{} right after `alma run`",
    "width": "--width {}",
    "wait": "--wait {}",
    "replay": "--replay, or nothing for none",
    "seed": "--seeds {}",
    "seeds": "--seeds {}",
    "engine": "--engine {}",
    "device": "--device {}",
    "threads": "--threads {}",
    "policy": "--policy {}",
    "on_epoch": "a Python script: `agents.make` takes any function",
}
