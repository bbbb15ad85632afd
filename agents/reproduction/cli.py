"""``alma reproduce``: a figure or table of the paper, its sweep and its findings, in one command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape

from agents.experiments import cli as experiments_cli
from agents.experiments.spec import RunSpec
from agents.figures import FORMATS
from agents.finished import FinishedRun
from agents.reproduction import drawing, findings, report
from agents.reproduction.cost import cost_of
from agents.reproduction.plan import NAMES, SCALES, Plan, read
from agents.reproduction.recorded import among, recorded_runs
from agents.reproduction.setting import FAMILIES, setting
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
    parser.add_argument(
        "--recorded", action="store_true", help="draw and judge the runs that come with the package; run nothing"
    )
    parser.add_argument(
        "--format", nargs="+", choices=FORMATS, default=["png", "csv"], help="of the figures, default png csv"
    )
    experiments_cli.add_execution_options(parser)
    parser.set_defaults(out=Path("reproduction"))


def _reproduce(options: argparse.Namespace, console: Console) -> int:
    plans = [read(name) for name in NAMES if name in options.names or ALL in options.names]
    settings = key_values(options.set)
    _require_needed(plans, options, settings)
    specs = {plan.name: plan.specs(options.scale, options.seeds, settings) for plan in plans}
    together = list({spec.digest(): spec for chosen in specs.values() for spec in chosen}.values())
    _print_cost(console, plans, options.scale, specs, together)
    if options.dry_run:
        return 0
    failed = 0
    if options.recorded:
        runs = recorded_runs()
    else:
        swept = experiments_cli.carry_out(together, options, console)
        runs, failed = swept.runs(), len(swept.failed)
    found = {name: among(chosen, runs) for name, chosen in specs.items()}
    parts = [_head(plans, options, specs, found)]
    for plan in plans:
        parts.append(drawing.section(plan, found[plan.name], options.out, options.format))
    judged = findings.judge(_by_finding(plans, found), options.scale)
    parts.append(report.findings_section(judged))
    file = options.out / "reproduction.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(parts), encoding="utf-8")
    console.print(Markdown(report.findings_table(judged)))
    console.print(f"Figures, tables and every comparison: {file}", markup=False, highlight=False, soft_wrap=True)
    return 1 if failed else 0


def _require_needed(plans: Sequence[Plan], options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
    if options.dry_run or options.recorded:
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
        console.print(f"{plan.name}: {escape(plan.scales[scale].says)}", highlight=False, soft_wrap=True)


def _head(
    plans: Sequence[Plan],
    options: argparse.Namespace,
    specs: Mapping[str, Sequence[RunSpec]],
    found: Mapping[str, Sequence[FinishedRun]],
) -> str:
    source = "recorded, " if options.recorded else ""
    lines = [f"# {', '.join(plan.name for plan in plans)} at scale {options.scale}\n"]
    for plan in plans:
        there, asked = len(found[plan.name]), len(specs[plan.name])
        said = plan.scales[options.scale].says
        lines.append(f"* {plan.name} ({plan.paper}): {source}{there} of {asked} runs. {said[0].upper()}{said[1:]}.")
    families = {findings.family(id) for plan in plans for id in plan.findings}
    notes = [setting(family, options.scale).note for family in FAMILIES if family in families]
    return "\n".join([*lines, *(f"* {note[0].upper()}{note[1:]}." for note in notes if note), ""])


def _by_finding(
    plans: Sequence[Plan], found: Mapping[str, Sequence[FinishedRun]]
) -> dict[str, list[FinishedRun]]:
    """For the id of a finding, the runs of all plans that can decide about it, each once."""
    out: dict[str, dict[int, FinishedRun]] = {}
    for plan in plans:
        for finding in plan.findings:
            out.setdefault(finding, {}).update({id(run): run for run in found[plan.name]})
    return {finding: list(runs.values()) for finding, runs in out.items()}
