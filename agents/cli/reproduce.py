"""``alma reproduce``: a figure or table of the paper, its sweep and its findings, in one command."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from agents import finished
from agents.console import say
from agents.experiments import cli as experiments_cli
from agents.experiments.spec import RunSpec
from agents.figures import FORMATS
from agents.reproduction import drawing, report
from agents.reproduction.cost import cost_of
from agents.reproduction.findings import Judged, family
from agents.reproduction.outcome import Outcome, judged, notes
from agents.reproduction.plan import NAMES, SCALES, Plan, read
from agents.reproduction.recorded import recorded_runs
from agents.reproduction.setting import setting
from agents.words import key_values

ALL = "all"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``alma``."""
    parser = commands.add_parser("reproduce", help="run, draw and judge a figure or table of the paper")
    parser.set_defaults(command=_reproduce)
    parser.add_argument("names", nargs="+", choices=[*NAMES, ALL], metavar="NAME", help=", ".join((*NAMES, ALL)))
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="cpu",
        help="smoke: tries the command in a minute; cpu: what fits a night on two cores; gpu: the paper's. Default cpu",
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="in place of the plan's")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="any hyper-parameter or keyword of the environment, in place of the plan's",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what it would cost, and end")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--recorded", action="store_true", help="draw and judge the runs that come with the package; run nothing"
    )
    source.add_argument(
        "--runs",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="likewise of the finished runs in these folders, or files that `alma pack` wrote",
    )
    parser.add_argument(
        "--format", nargs="+", choices=FORMATS, default=["png", "csv"], help="of the figures, default png csv"
    )
    experiments_cli.add_execution_options(parser)
    parser.set_defaults(out=Path("reproduction"))


def _reproduce(options: argparse.Namespace, console: Console) -> int:
    plans = [read(name) for name in NAMES if name in options.names or ALL in options.names]
    settings = _settings(options.set)
    _require_ticks(plans, options.scale, settings)
    _require_needed(plans, options, settings)
    asked = {plan.name: plan.specs(options.scale, options.seeds, settings) for plan in plans}
    together = list({spec.digest(): spec for specs in asked.values() for spec in specs}.values())
    _print_cost(console, plans, options.scale, asked, together)
    if options.dry_run:
        return 0
    failed = 0
    if options.recorded:
        runs = recorded_runs()
    elif options.runs:
        runs, left_out = finished.find(*options.runs)
        for message in left_out:
            say(console, message)
    else:
        swept = experiments_cli.carry_out(together, options, console)
        runs, failed = swept.runs(), len(swept.failed)
    outcomes = [Outcome.of(plan, options.scale, asked[plan.name], runs, recorded=options.recorded) for plan in plans]
    if options.runs and not any(outcome.runs for outcome in outcomes):
        raise ValueError(
            f"--runs {' '.join(map(str, options.runs))}: none of {len(runs)} finished runs is one of "
            f"{', '.join(asked)} at scale {options.scale}; choose the scale, --seeds and --set that they were run with"
        )
    found = judged(outcomes, options.scale)
    file = options.out / "reproduction.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_markdown(outcomes, found, options), encoding="utf-8")
    for outcome in outcomes:
        say(console, f"{outcome.plan.name}: {outcome.coverage}")
    for note in notes(plans, options.scale):
        say(console, _sentence(note))
    _print_findings(console, found)
    say(console, f"Figures, tables and every comparison: {file}")
    return 1 if failed else 0


def _markdown(outcomes: Sequence[Outcome], found: Sequence[Judged], options: argparse.Namespace) -> str:
    plans = [outcome.plan for outcome in outcomes]
    lines = [f"# {', '.join(plan.name for plan in plans)} at scale {options.scale}\n"]
    for outcome in outcomes:
        said = outcome.plan.scales[options.scale].says
        lines.append(f"* {outcome.plan.name} ({outcome.plan.paper}): {outcome.coverage}. {_sentence(said)}")
    lines += [f"* {_sentence(note)}" for note in notes(plans, options.scale)]
    if options.set:
        lines.append(f"* In place of the plan's: {', '.join(options.set)}.")
    sections = [drawing.section(one.plan, one.scale, one.runs, options.out, options.format) for one in outcomes]
    return "\n".join([*lines, "", *sections, report.findings_section(found)])


def _print_findings(console: Console, found: Sequence[Judged]) -> None:
    lines = Table(box=None, show_header=False, pad_edge=False)
    for one in found:
        if one.run:
            said = f"{report.DATA[one.finding.family]}: {one.finding.says}"
            lines.add_row(one.verdict, escape(f"{said}\n{report.counts(one)}; the weakest: {report.weakest(one)}"))
    console.print(lines)
    others = [one.finding.id for one in found if not one.run]
    if others:
        say(console, f"Findings that these runs cannot decide about, not run: {', '.join(others)}")


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    settings = key_values(pairs)
    for name, value in settings.items():
        if name in _OF_THE_GRID:
            raise ValueError(
                f"--set {name}={value}: {name} is what a plan goes through; `alma sweep` makes other grids, and "
                "--seeds chooses other seeds"
            )
    return settings


_OF_THE_GRID = {field.name for field in dataclasses.fields(RunSpec)} | {"seeds"}


def _require_ticks(plans: Sequence[Plan], scale: str, settings: Mapping[str, Any]) -> None:
    """A plan's waiting times, and what is said of them, are those of a stream of the plan's length."""
    if "ticks" not in settings:
        return
    for plan in plans:
        several = [setting(family(id), scale) for id in plan.findings]
        several = [now for now in several if len(now.waits) > 1]
        if several:
            raise ValueError(
                f"--set ticks={settings['ticks']}: {plan.name} compares waiting times of a stream with "
                f"{several[0].tardy} mega-batches; leave it out, or make a grid of your own with `alma sweep`"
            )


def _require_needed(plans: Sequence[Plan], options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
    if options.dry_run or options.recorded or options.runs:
        return
    for plan in plans:
        missing = [name for name in plan.scales[options.scale].needs if name not in settings]
        if missing:
            raise ValueError(
                f"{plan.name} --scale {options.scale}: needs a text of one's own; give it as "
                f"--set {' '.join(f'{name}=PATH' for name in missing)}, or choose --scale cpu, which has one"
            )


def _print_cost(
    console: Console,
    plans: Sequence[Plan],
    scale: str,
    specs: Mapping[str, Sequence[RunSpec]],
    together: Sequence[RunSpec],
) -> None:
    costs = [(plan.name, scale, cost_of(specs[plan.name])) for plan in plans]
    if len(plans) > 1:
        costs.append(("together", scale, cost_of(together)))
    console.print(Markdown(report.costs_table(costs)))
    for plan in plans:
        say(console, f"{plan.name}: {plan.scales[scale].says}")
