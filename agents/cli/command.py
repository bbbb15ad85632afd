"""The ``alma`` command: run agents through streams, list what there is, show what was run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import alma_env
from agents import backbones, cli_arena, finished, packed_cli, parallel, report, tables_cli
from agents.console import draw_curves, say
from agents.experiments import cli as experiments_cli
from agents.figures import cli as figures_cli
from agents.methods import METHODS, TEXT_METHODS
from agents.recipes import recipe_for
from agents.reproduction import cli as reproduction_cli
from agents.stage import StageSettings
from agents.waiting import cli as waiting_cli
from alma_env import AlmaError, Ledger
from alma_env.data import TEXT
from alma_env.registration import PROTOCOLS, TEXT_ID


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
    console.print(
        f"[bold red]alma {options.name}{who}:[/] {escape(message)}", highlight=False, soft_wrap=True, emoji=False
    )
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="alma", description="Anytime learning at macroscale.")
    parser.add_argument("--version", action="version", version=f"alma-env {alma_env.__version__}")
    commands = parser.add_subparsers(dest="name", required=True)

    experiments_cli.add_to(commands)
    reproduction_cli.add_to(commands)
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
        say(console, message)
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
            draw_curves(console, groups, options.folder, streams, measure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
