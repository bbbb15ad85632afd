"""The ``alma`` command: run agents through streams, list what there is, show what was run."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import alma_env
from agents import (
    backbones,
    catalogue,
    cli_arena,
    figures,
    finished,
    packed_cli,
    parallel,
    process,
    report,
    runs,
    tables_cli,
    trackers,
)
from agents.console import RunProgress
from agents.figures import cli as figures_cli
from agents.methods import METHODS, TEXT_METHODS, method_for
from agents.policy_specs import policy_from
from agents.recipes import recipe_for
from agents.stage import StageSettings
from agents.waiting import cli as waiting_cli
from agents.words import key_values
from alma_env import AlmaError, Ledger, Row
from alma_env.data import TEXT
from alma_env.registration import PROTOCOLS, TEXT_ID

DEFAULT_ENV = "Digits-ALMA-v0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``alma`` and of ``python -m agents``; the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        status: int = options.command(options, console)
        return status
    except parallel.OtherRankError:
        return 2  # the first rank has said it
    except (AlmaError, ValueError, TypeError) as error:
        return _refuse(options, str(error))
    except OSError as error:
        return _refuse(
            options,
            f"{error.filename or 'a file'}: {error.strerror or error}; choose a folder that can be read and written, "
            "with room on its disk",
        )
    except KeyboardInterrupt:
        if parallel.rank() > 0:
            return 130
        how = "the same command without --fresh" if getattr(options, "fresh", False) else "the same command"
        Console(stderr=True).print(f"stopped; {how} goes on from here", highlight=False)
        return 130


def _refuse(options: argparse.Namespace, message: str) -> int:
    # Escaped, since a remedy such as 'alma-env[tensorboard]' would be taken for markup.
    console = Console(stderr=True)
    who = f" on rank {parallel.rank()}" if parallel.rank() > 0 else ""
    console.print(f"[bold red]alma {options.name}{who}:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="alma", description="Anytime learning at macroscale.")
    parser.add_argument("--version", action="version", version=f"alma-env {alma_env.__version__}")
    commands = parser.add_subparsers(dest="name", required=True)

    run = commands.add_parser("run", help="take an agent through a stream, for several waits and seeds")
    run.set_defaults(command=_run)
    run.add_argument("env", nargs="?", default=DEFAULT_ENV, help=f"environment id, default {DEFAULT_ENV}")
    run.add_argument("--agent", default="sm", help="agent id (see `alma agents`), default sm")
    run.add_argument("--width", type=int, nargs="+", help="units or channels; default: the recipe's")
    run.add_argument("--wait", type=int, nargs="+", help="waiting times in mega-batches; default: the recipe's")
    run.add_argument(
        "--policy",
        nargs="+",
        default=[],
        help="when to train, in place of --wait: doubling, validation, random, budget, with NAME:field=value,… "
        "where it should differ from its default, or a learned policy PATH.zip",
    )
    run.add_argument("--seeds", type=int, nargs="+", default=[0], help="run seeds, default 0")
    run.add_argument("--replay", action="store_true", help="train on everything seen so far")
    run.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="any hyper-parameter of the agent or keyword of the environment, e.g. epochs=20 ticks=50; for text its "
        "files: train=FOLDER valid=FILE test=FILE vocabulary_size=8000 sequence_length=128",
    )
    run.add_argument("--engine", default="auto", choices=["auto", "plain", "compiled"], help="how to train")
    run.add_argument("--device", default="auto", help="cpu, cuda, …; default auto")
    run.add_argument("--threads", type=int, help="PyTorch threads; default: 1 for an MLP, else all cores")
    run.add_argument("--out", type=Path, default=Path("runs"), help="folder of run folders, default runs/")
    run.add_argument(
        "--record",
        action="store_true",
        help="also score on the validation parts of the whole stream, as `alma surrogate fit` needs for policies that "
        "are not tuned on the test set",
    )
    run.add_argument("--fresh", action="store_true", help="delete these runs' folders first, finished or not")
    run.add_argument(
        "--track",
        nargs="+",
        default=[],
        metavar="TRACKER",
        help="also tell experiment trackers: tensorboard, wandb, mlflow",
    )

    commands.add_parser("envs", help="list the environments").set_defaults(command=_envs)
    commands.add_parser("agents", help="list the agents and their hyper-parameters").set_defaults(command=_agents)

    waiting_cli.add_to(commands)
    cli_arena.add_to(commands)
    figures_cli.add_to(commands)
    tables_cli.add_to(commands)
    packed_cli.add_to(commands)

    show = commands.add_parser("show", help="table and picture of a run folder, or of all below a folder")
    show.set_defaults(command=_show)
    show.add_argument("folder", type=Path, help="a run's folder, or one that holds several")
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    with parallel.joined(options.device):
        return _run_all(options, console if parallel.rank() == 0 else Console(quiet=True))


def _run_all(options: argparse.Namespace, console: Console) -> int:
    protocol, hyperparameters = catalogue.split_keywords(options.env, _settings(options.set))
    env = alma_env.make(options.env, **protocol)
    measure = report.measure_of(env.protocol())
    recipe = recipe_for(env.data.name)
    process.prepare(options.threads, recipe.backbone)
    every_tick = options.agent in METHODS and METHODS[options.agent].always
    usual = [1] if every_tick else [wait for wait in recipe.waits if wait <= env.ticks] or [1]
    widths = options.width or [recipe.width]
    for option, values in (
        ("--width", widths),
        ("--wait", options.wait or []),
        ("--policy", options.policy),
        ("--seeds", options.seeds),
    ):
        _require_distinct(option, values)
    when = _when(options, recipe.backbone, options.wait or usual)
    make = partial(
        catalogue.make,
        options.agent,
        env,
        engine=options.engine,
        device=options.device,
        **hyperparameters,
    )
    trackers.require(options.track)
    combinations = list(itertools.product(widths, when, options.seeds))
    # All agents are made once, and dropped, before the first run, so that a mistake in the last is told before hours
    # of work; and before --fresh deletes anything.
    configs = [runs.describe(env, make(width=width, seed=seed, **how), seed) for width, how, seed in combinations]
    labels = report.labels(configs)
    groups: dict[str, list[Ledger]] = {}
    folder = options.out / options.env
    with RunProgress(console, measure) as progress:
        for (width, how, seed), config, label in zip(combinations, configs, labels, strict=True):
            agent = make(width=width, seed=seed, on_epoch=progress.on_epoch, **how)
            path = folder / run_name(config)
            if options.fresh:
                parallel.from_first(partial(runs.clear, path))
            epochs = agent.config["stage"]["epochs"]
            replay = options.replay or every_tick
            work = partial(catalogue.training_examples, env, epochs, wait=how.get("wait", 1), replay=replay)
            on_tick = progress.begin(f"{label}, seed {seed}", agent, work)
            with trackers.following(options.track if parallel.rank() == 0 else [], path, config) as told:
                ledger = runs.run(env, agent, seed, path, on_tick=_both(on_tick, told), record=options.record)
            progress.end(ledger)
            groups.setdefault(label, []).append(ledger)
    if parallel.rank() > 0:
        return 0
    console.print(report.table(groups, title=f"{options.env}, {env.ticks} mega-batches", measure=measure))
    _say(console, f"Runs are in {folder}/")
    _draw(console, groups, folder, f"{options.env}: {measure.name} at every tick", measure)
    return 0


def _when(options: argparse.Namespace, backbone: str, waits: Sequence[int]) -> list[dict[str, Any]]:
    """Waiting times or policies, as keywords of ``agents.make``.

    Raises:
        ValueError: both are given, or there is no such policy.
    """
    if not options.policy:
        return [{"wait": wait, "replay": options.replay} for wait in waits]
    for option, value in (("--wait", options.wait), ("--replay", options.replay)):
        if value:
            raise ValueError(
                f"{option} beside --policy {' '.join(options.policy)}: a policy says when to train, and on what; give "
                "one of the two, with replay as --policy doubling:replay=true"
            )
    grows = method_for(options.agent, backbone).grows
    return [{"policy": policy_from(spec, grows=grows)} for spec in options.policy]


def _draw(console: Console, groups: dict[str, list[Ledger]], folder: Path, title: str, measure: report.Measure) -> None:
    (picture,) = figures.save(figures.error_curves(groups, title, measure), folder / measure.plural)
    _say(console, f"{measure.name.capitalize()} curves: {picture.resolve()}")


def _say(console: Console, message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def _require_distinct(option: str, values: Sequence[int] | Sequence[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            words = " ".join(map(str, values))
            raise ValueError(
                f"{option} {words}: {value} stands there twice, but a run counts once; give each value once"
            )


def run_name(config: dict[str, Any]) -> str:
    """Folder name of a run: readable, and unique to its configuration by a digest."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.=-]", "", report.label(config).replace(", ", "-").replace("(", "-"))
    return f"{name}-seed{config['seed']}-{digest}"


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


def _both(one: runs.OnTick, other: runs.OnTick) -> runs.OnTick:
    def tell(row: Row) -> None:
        one(row)
        other(row)

    return tell


def _envs(options: argparse.Namespace, console: Console) -> int:
    table = Table(title="Environments", title_justify="left")
    for column in ("id", "data", "mega-batches B", "recipe", "waits compared"):
        table.add_column(column)
    for id, protocol in PROTOCOLS.items():
        recipe = recipe_for(protocol["data"])
        waits = ", ".join(map(str, recipe.waits))
        table.add_row(id, protocol["data"], str(protocol["ticks"]), f"{recipe.backbone}-{recipe.width}", waits)
    recipe = recipe_for(TEXT)
    waits = ", ".join(map(str, recipe.waits))
    table.add_row(TEXT_ID, "files of text, or the package's own", "4", f"{recipe.backbone}-{recipe.width}", waits)
    table.add_row(alma_env.registration.ARRAYS_ID, "your own arrays (Python only)", "ticks=…", "mlp-32", "1, 5")
    table.caption = (
        "X-ALMA-v0 has a decision environment X-ALMA-Wait-v0, and that a surrogate, X-ALMA-Wait-Surrogate-v0."
    )
    table.caption_justify = "left"
    console.print(table)
    return 0


def _agents(options: argparse.Namespace, console: Console) -> int:
    for title, methods in (("Agents", METHODS), ("Agents on text", TEXT_METHODS)):
        table = Table(title=title, title_justify="left", show_lines=True)
        for column in ("id", "method", "hyper-parameters of its own (default)"):
            table.add_column(column)
        for id, method in methods.items():
            table.add_row(id, escape(method.title), escape(_defaults(method.keywords)))
        console.print(table)
    names = ", ".join(field.name for field in dataclasses.fields(StageSettings))
    console.print(
        f"Of every agent: width, wait, replay, growth, seed, engine, device; of a stage: {names}. "
        f"Of the network on text: {_defaults(backbones.keywords_of('switch'))}.",
        markup=False,
        highlight=False,
    )
    return 0


def _defaults(keywords: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in keywords.items())


def _show(options: argparse.Namespace, console: Console) -> int:
    found, left_out = finished.find(options.folder)
    for message in left_out:
        _say(console, message)
    if len(found) == 1 and not left_out:
        console.print_json(json.dumps(found[0].config))
    for measure in (report.ERROR_RATE, report.PERPLEXITY):  # error rates and perplexities have no common table
        alike = [run for run in found if report.measure_of(run.config["protocol"]) == measure]
        if alike:
            streams = ", ".join(sorted({run.config["env"] for run in alike}))
            groups: dict[str, list[Ledger]] = {}
            labels = report.labels([run.config for run in alike])
            for label, run in zip(labels, alike, strict=True):
                groups.setdefault(label, []).append(run.ledger)
            console.print(report.table(groups, title=streams, measure=measure))
            _draw(console, groups, options.folder, streams, measure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
