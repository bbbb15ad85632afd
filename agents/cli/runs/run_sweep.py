"""``alma run``: one run after another in this process, a bar for each; ``alma sweep``: many runs at once."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agents.analysis import measures
from agents.analysis.labels import labels_of
from agents.catalogue import own_code
from agents.catalogue.recipes import recipe_for
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec
from agents.cli.console import RunProgress, draw_curves
from agents.cli.options.parser import DEFAULT_ENV
from agents.cli.options.shared_options import execution, require_settings
from agents.policies.validation import key_values
from agents.runs import load, run_folder
from agents.runs import run as runs
from agents.sweeps import grid, process_setup, run_index, trackers
from agents.sweeps.jobs import RunFailedError, examples_until, execute
from agents.sweeps.pending import plan
from agents.sweeps.progress import say
from agents.sweeps.sweep import sweep
from agents.training import distributed
from alma_env import Ledger
from alma_env.registration import ARRAYS_ID


def run(options: argparse.Namespace, console: Console) -> int:
    """Run agents through one stream, one after another."""
    with distributed.process_group(options.device):
        return run_in_turn(
            _specs(options),
            options.out,
            console if distributed.rank() == 0 else Console(quiet=True),
            threads=options.threads,
            fresh=options.fresh,
            track=options.track,
        )


def run_in_turn(
    specs: Sequence[RunSpec],
    out: Path,
    console: Console,
    *,
    threads: int | None = None,
    fresh: bool = False,
    track: Sequence[str] = (),
) -> int:
    """Run specifications that share environment and keywords, below ``out``; return the exit status.

    A run that fails does not stop the others, and the exit status is then 1: its learner or predictor breaks a rule,
    for example because its training diverged so far that it cannot be scored, or the user's own code raises an error.
    ``threads`` is as for `process_setup.prepare`; ``fresh`` deletes the run folders first.
    """
    env = specs[0].make_env()
    measure = measures.measure_of(env.protocol())
    process_setup.prepare(threads, recipe_for(env.data.name).backbone)
    specs = [dataclasses.replace(spec, threads=torch.get_num_threads()) for spec in specs]
    trackers.require(track)
    # Every agent is created once and dropped before the first run starts and before --fresh deletes anything.
    # A mistake in the last specification is reported now, not after hours of training.
    configs = [runs.config_of(env, spec.make_agent(env), spec.seed) for spec in specs]
    labels = labels_of(configs)
    paths = [run_index.folder_of(out, config) for config in configs]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise ValueError(f"{specs[number]}: the same run as {specs[paths.index(path)]}; leave one of them out")
    if fresh:  # all folders before the first run: after an interrupt the command goes on without --fresh
        distributed.from_first(partial(run_folder.clear, *paths))
    else:
        distributed.from_first(partial(_require_readable, paths, specs, configs))
    status, groups = 0, dict[str, list[Ledger]]()
    with RunProgress(console, measure) as progress:
        for spec, path, label in zip(specs, paths, labels, strict=True):
            agent = spec.make_agent(env, progress.on_epoch)
            on_tick = progress.begin(f"{label}, seed {spec.seed}", agent, examples_until(env, agent))
            try:
                ledger = execute(spec, env, agent, path, on_tick=on_tick, track=track)
            except RunFailedError as error:
                reason = own_code.traceback_of(error) or error
                say(console, f"{label}, seed {spec.seed}: {reason}", style="bold red")
                status = 1
                continue
            progress.end(ledger)
            if distributed.rank() == 0 and (diverged := load.divergence(path)):
                say(console, f"{label}, seed {spec.seed}: {diverged}")
            groups.setdefault(label, []).append(ledger)
    if distributed.rank() > 0 or not groups:
        return status
    id = specs[0].env
    console.print(measures.table(groups, title=f"{id}, {env.ticks} mega-batches", measure=measure))
    say(console, f"Runs are in {out / id}/")
    draw_curves(console, groups, out / id, f"{id}: {measure.name} at every tick", measure)
    return status


def _require_readable(paths: Sequence[Path], specs: Sequence[RunSpec], configs: Sequence[RunConfig]) -> None:
    """Raise the errors of all run folders before the first run starts, and not after hours of computing."""
    for path, spec, config in zip(paths, specs, configs, strict=True):
        run_folder.finished_rows(path, config)
        if (path / "stages.jsonl").exists():
            run_folder.read_stages(path)
        run_index.require_record(path, spec)


def _specs(options: argparse.Namespace) -> list[RunSpec]:
    """The runs that the options of ``alma run`` describe."""
    for key in ("width", "wait", "policy", "seeds"):
        grid.require_distinct(f"--{key}", getattr(options, key) or [])
    if options.policy:
        for option, value in (("--wait", options.wait), ("--replay", options.replay)):
            if value:
                raise ValueError(
                    f"{option} with --policy {' '.join(options.policy)}: a policy decides when to train and on what; "
                    "give one of the two options, and replay as --policy doubling:replay=true"
                )
    settings = {key: [value] for key, value in _settings(options.set).items()}  # a list is one value
    given = _given(options)
    data = _data(options, given)
    return grid.expand({"env": DEFAULT_ENV} | given | {"set": settings | data})


def _data(options: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Return the setting that ``--data`` stands for, and let the environment be that of the user's own data."""
    envs = [given["env"]] if isinstance(given.get("env"), str) else given.get("env", [])
    if options.data is None:
        if ARRAYS_ID in envs:
            raise ValueError(f"{ARRAYS_ID} without data: give --data PATH; `alma run --help` has the forms of the data")
        return {}
    if envs not in ([], [ARRAYS_ID]):
        raise ValueError(
            f"--data {options.data} with {' '.join(envs)}: an environment with data of its own; write {ARRAYS_ID}, or "
            "nothing"
        )
    given["env"] = [ARRAYS_ID]
    return {"data": [options.data]}


def run_grid(options: argparse.Namespace, console: Console) -> int:
    """Run a grid in several processes or on a cluster; with --dry-run list its runs."""
    if options.file:
        _require_no_grid(options)
        specs = grid.read(options.file)
    else:
        specs = grid.expand(_table(options))
    return compute(specs, options, console)


def compute(specs: Sequence[RunSpec], options: argparse.Namespace, console: Console) -> int:
    """Compute runs as the options of execution say, or list them; return the exit status."""
    keywords = execution(options)
    if options.dry_run:
        _list(specs, options, console)
        return 0
    report = sweep(specs, options.out, console=console, **keywords)
    before = f", {report.skipped} of them from before" if report.skipped else ""
    finished = len(set(report.finished.values()))  # two specifications can be one run
    count = f"{finished} run{'s are' if finished != 1 else ' is'}"
    say(console, f"{count} finished{before}; see {options.out}/")
    return 1 if report.failed else 0


def _require_no_grid(options: argparse.Namespace) -> None:
    """Raise ValueError if options describe a grid beside a file."""
    both = f"with {options.file}: describe the grid in the file or by options, not by both"
    if options.data is not None:
        raise ValueError(
            f'--data {options.data} {both}; in the file write env = "{ARRAYS_ID}", and data = "{options.data}" in [set]'
        )
    for option in _written(_given(options)):
        raise ValueError(f"{option} {both}")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    keys = ("env", "agent", "width", "wait", "policy", "seeds", "replay", "engine", "device", "record", "set")
    return {key: getattr(options, key) for key in keys if getattr(options, key) not in (None, False, [])}


def _written(given: Mapping[str, Any]) -> list[str]:
    """The options of `alma sweep` as the user wrote them: the values of ``replay`` are two options."""
    replay = ["--replay" if value else "--no-replay" for value in given.get("replay", [])]
    return [option for key in given for option in (replay if key == "replay" else [f"--{key}"])]


def _table(options: argparse.Namespace) -> dict[str, Any]:
    """The grid that the options describe, as a table."""
    table = _given(options)
    data = _data(options, table)
    if "env" not in table:
        if table:
            given = " ".join(_written(table))
            raise ValueError(f"{given} without --env: a grid needs an environment; add for example --env {DEFAULT_ENV}")
        raise ValueError(f"no grid: give a TOML file, or options: alma sweep --env {DEFAULT_ENV} --wait 5 20")
    for key in ("env", "agent", "width", "wait", "policy", "seeds"):
        grid.require_distinct(f"--{key}", table.get(key, []))
    for option in ("--replay", "--no-replay"):
        if _written(table).count(option) > 1:
            raise ValueError(f"{option}: given twice, but each run counts once; give it once")
    return table | {"set": _settings(options.set) | data}


def _list(specs: Sequence[RunSpec], options: argparse.Namespace, console: Console) -> None:
    if options.threads is not None:
        specs = [dataclasses.replace(spec, threads=options.threads) for spec in specs]
    planned = plan(specs, options.out, fresh=options.fresh)
    lines, started, listed = [], 0, set[Path]()
    for digest, spec in {spec.digest(): spec for spec in specs}.items():
        of = planned.same.get(digest, digest)
        folder = planned.finished[of] if of in planned.finished else planned.pending[of].folder
        if folder in listed:
            continue
        listed.add(folder)
        if of in planned.finished:
            lines.append(f"done     {spec}  ({planned.finished[of]})")
            continue
        answered = 0 if options.fresh else run_index.rows_in(planned.pending[of].folder)
        started += answered > 0
        lines.append(f"tick {answered - 1:<3} {spec}" if answered else f"to run   {spec}")
    say(console, "\n".join(lines))
    done = sum(line.startswith("done") for line in lines)
    count = f"{len(lines)} run{'s' * (len(lines) != 1)}"
    say(console, f"{count}: {done} done, {started} started, {len(lines) - done - started} to run")


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    values = key_values(pairs)
    require_settings(values, OPTIONS)
    return values


# Keys that --set of `alma run` and `alma sweep` must not give, and what to write instead.
OPTIONS = {
    "id": "--agent {}",
    "data": "--data {}",
    "agent": "--agent {}",
    "env": "{} right after `alma run`",
    "width": "--width {}",
    "wait": "--wait {}",
    "replay": "--replay, or nothing for no replay",
    "seed": "--seeds {}",
    "seeds": "--seeds {}",
    "engine": "--engine {}",
    "device": "--device {}",
    "threads": "--threads {}",
    "policy": "--policy {}",
    "on_epoch": "a Python script: `agents.make` takes any function",
}
