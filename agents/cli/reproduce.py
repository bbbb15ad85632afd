"""``alma reproduce``: sweep, figures, tables and findings of the paper in one command."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from agents.catalogue.spec import RunSpec, distinct
from agents.cli.options.parser import ALL_PLANS
from agents.cli.options.shared_options import execution, require_settings
from agents.policies.validation import key_values
from agents.reproduction import findings_report, report
from agents.reproduction.calibration import calibrate, samples_for, slowness
from agents.reproduction.claims.findings import JudgedFinding, family
from agents.reproduction.claims.setups import read_setup
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome, judge_outcomes, recorded_runs, split
from agents.reproduction.plans import BY_NAME, NAMES, Plan, Request, read
from agents.reproduction.printed import printed
from agents.reproduction.throughput import measured_data
from agents.runs import load
from agents.runs.load import FinishedRun
from agents.sweeps.local import worker_variables
from agents.sweeps.progress import say
from agents.sweeps.sweep import sweep


def reproduce(options: argparse.Namespace, console: Console) -> int:
    """Run or read the runs of plans; draw them, judge the findings, and write a report."""
    settings = _settings(options.set)
    request = Request(options.scale, options.seeds, settings)
    keywords = execution(options)
    _require_no_ignored_option(options)
    plans, without_text = _plans(options, settings)
    _require_ticks(plans, options.scale, settings)
    if without_text:
        remedy = f"alma reproduce {' '.join(without_text)} --scale {options.scale} --set train=PATH valid=PATH"
        say(console, f"Without text of your own, {', '.join(without_text)} are left out; run {remedy}")
    specs = {plan.name: plan.specs(options.scale, options.seeds, settings) for plan in plans}
    if options.print:
        _print_part(plans, specs, request, options, console)
        return 0
    together = distinct(spec for of_plan in specs.values() for spec in of_plan)
    runs = _finished(options, console)
    slow = _slowness(split(together, runs)[1], together, options, console) if options.calibrate else {}
    costs = [(name, options.scale, cost_of(of_plan, slow)) for name, of_plan in specs.items()]
    if len(plans) > 1:
        costs.append(("together", options.scale, cost_of(together, slow)))
    console.print(Markdown(report.costs_table(costs)))
    say(console, *(f"{plan.name}: {plan.scales[options.scale].description}" for plan in plans))
    if request.changes:
        say(console, _instead(request))
    if options.missing or (options.dry_run and _only_reads(options)):
        console.print(Markdown(report.remaining_table(_outcomes(plans, specs, runs, options), slow)))
    if options.dry_run:
        return 0
    failed = 0
    if not _only_reads(options):
        _, wanted = split(together, runs)
        swept = sweep(wanted, options.out, console=console, in_order=True, **keywords)
        runs, failed = [*runs, *swept.runs()], len(swept.failed)
    outcomes = _outcomes(plans, specs, runs, options)
    found = judge_outcomes(outcomes, runs, request)
    file = options.out / "reproduction.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_markdown(outcomes, found, request, options), encoding="utf-8")
    say(console, *(f"{outcome.plan.name}: {outcome.coverage}" for outcome in outcomes))
    say(console, *map(_sentence, report.notes(plans, options.scale)))
    if found:
        _print_findings(console, found, request)
    say(console, f"Figures, tables and every comparison: {file}")
    return 1 if failed else 0


def _require_no_ignored_option(options: argparse.Namespace) -> None:
    """Raise ValueError for an option that another option makes useless."""

    def refuse(names: Sequence[str], other: str, why: str) -> None:
        for name in names:
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{option} with {other}: {why}; leave {option} out")

    if _only_reads(options):
        names = ("fresh", "workers", "threads", "per_gpu", "ray", "track")
        refuse(names, "--recorded or --runs", "no run is computed then")
    if options.print:
        refuse(("dry_run", "calibrate"), f"--print {options.print}", "each prints something else")
    if options.print == "costs":
        refuse(("recorded", "runs", "missing"), "--print costs", "the table has the costs of all runs, finished or not")
    if options.calibrate:
        refuse(("per_gpu", "ray"), "--calibrate", "it measures the cores of this machine")
        if not options.dry_run:
            raise ValueError("--calibrate without --dry-run: it measures the hours that --dry-run prints; give both")


def _slowness(
    left: Sequence[RunSpec], specs: Sequence[RunSpec], options: argparse.Namespace, console: Console
) -> dict[str, float]:
    """Measure this machine, and print how many times as long it takes as the rates of the package say.

    Args:
        left: the runs that are not finished; only their data are measured, with no more processes than they need.
        specs: all runs of the table.
        options: of the command.
        console: for the factors.

    Raises:
        ValueError: no data of the runs that are left can be measured.
    """
    if not left:
        say(console, "All runs are finished, so this machine is not measured; the hours are those of the package")
        return {}
    workers = min(len(left), options.workers or len(worker_variables(None, 0, options.threads or 1)))
    data = {spec.known_facts().data for spec in left}
    measured = samples_for(data)
    say(console, f"Measuring this machine (runs side by side: {workers}); it takes some minutes")
    found = calibrate(data, workers)
    for one in found:
        low, high = min(one.factors), max(one.factors)
        say(
            console,
            f"{one.data}: this machine takes {one.factor:.2f} times as long as the rates of the package "
            f"({len(one.factors)} measurements, {low:.2f} to {high:.2f})",
        )
    say(console, "The table below has the hours of this machine")
    all_data = {spec.known_facts().data for spec in specs}
    if others := [name for name in sorted(all_data) if measured_data(name) not in measured]:
        say(console, f"{', '.join(others)}: not measured; the hours are those of the rates of the package")
    return slowness(found)


def _only_reads(options: argparse.Namespace) -> bool:
    """Return whether finished runs are read, and no run is computed."""
    return bool(options.recorded or options.runs) and not options.missing


def _finished(options: argparse.Namespace, console: Console) -> list[FinishedRun]:
    """Return the recorded runs, the runs in the given places, or both, or none."""
    runs = recorded_runs() if options.recorded or options.missing else []
    if options.runs:
        found, left_out = load.find(*options.runs)
        say(console, *left_out)
        runs += found
    return runs


def _outcomes(
    plans: Sequence[Plan],
    specs: Mapping[str, Sequence[RunSpec]],
    runs: Sequence[FinishedRun],
    options: argparse.Namespace,
) -> list[Outcome]:
    only_recorded = options.recorded and not options.runs and not options.missing
    outcomes = [Outcome.of(plan, options.scale, specs[plan.name], runs, only_recorded) for plan in plans]
    if options.runs and not options.missing and not any(outcome.runs for outcome in outcomes):
        raise ValueError(
            f"--runs {' '.join(map(str, options.runs))}: none of {len(runs)} finished runs is one of "
            f"{', '.join(specs)} at scale {options.scale}; choose the --scale, --seeds and --set of the runs"
        )
    return outcomes


def _print_part(
    plans: Sequence[Plan],
    specs: Mapping[str, Sequence[RunSpec]],
    request: Request,
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Print one part as Markdown, for a page of the documentation."""
    if options.print != "costs" and not _only_reads(options):
        raise ValueError(f"--print {options.print}: it shows finished runs; give --recorded, or --runs PATH")
    runs = _finished(options, Console(stderr=True))
    text = printed(options.print, _outcomes(plans, specs, runs, options), runs, request)
    console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def _markdown(
    outcomes: Sequence[Outcome], found: Sequence[JudgedFinding], request: Request, options: argparse.Namespace
) -> str:
    plans = [outcome.plan for outcome in outcomes]
    lines = [f"# {', '.join(plan.name for plan in plans)} at scale {options.scale}\n"]
    for outcome in outcomes:
        description = _sentence(outcome.plan.scales[options.scale].description)
        lines.append(f"* {outcome.plan.name} ({outcome.plan.paper}): {outcome.coverage}. {description}")
    lines += [f"* {_sentence(note)}" for note in report.notes(plans, options.scale)]
    if request.changes:
        lines.append(f"* {_instead(request)}.")
    sections = [report.plan_section(outcome, options.out, options.format) for outcome in outcomes]
    return "\n".join([*lines, "", *sections, findings_report.findings_section(found, request)])


def _print_findings(console: Console, found: Sequence[JudgedFinding], request: Request) -> None:
    lines = Table(box=None, show_header=False, pad_edge=False)
    for one in found:
        if one.with_runs:
            claim = f"{findings_report.DATA[one.finding.family]}: {one.finding.statement}"
            verdict = findings_report.verdict_text(one, request)
            numbers = f"{findings_report.counts(one)}; the weakest: {findings_report.weakest(one)}"
            lines.add_row(escape(f"{claim}\n  {verdict}\n  {numbers}"))
    console.print(lines)
    others = [one.finding.id for one in found if not one.with_runs]
    if others:
        say(console, f"Findings that these runs cannot decide, not run: {', '.join(others)}")
    say(console, findings_report.summary(found).rstrip())


def _instead(request: Request) -> str:
    return f"Instead of the seeds and settings of the plans: {' '.join(request.changes)}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    settings = key_values(pairs)
    of_the_grid = [field.name for field in dataclasses.fields(RunSpec)] + ["seeds"]
    remedy = "use `alma sweep` for another grid, or --seeds for other seeds"
    require_settings(settings, {}, {name: f"the plan sets {name}; {remedy}" for name in of_the_grid})
    return settings


def _require_ticks(plans: Sequence[Plan], scale: str, settings: Mapping[str, Any]) -> None:
    """Refuse another stream length for plans that compare waiting times: their findings hold for the plan's length."""
    if "ticks" not in settings:
        return
    for plan in plans:
        longest = max(spec.wait or 1 for spec in plan.specs(scale))
        if not plan.findings and isinstance(settings["ticks"], int) and settings["ticks"] < longest:
            raise ValueError(
                f"--set ticks={settings['ticks']}: {plan.name} waits for {longest} mega-batches; use at least "
                f"ticks={longest}, or leave it out"
            )
        setups = [read_setup(family(id), scale) for id in plan.findings]
        several = [setup for setup in setups if len(setup.waits) > 1]
        if several:
            raise ValueError(
                f"--set ticks={settings['ticks']}: {plan.name} compares waiting times of a stream with "
                f"{several[0].tardy} mega-batches; leave it out, or run your own grid with `alma sweep`"
            )


def _plans(options: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[list[Plan], list[str]]:
    """Return the plans, and the names of those of ``all`` that are left out, because they need text of your own."""
    shows = options.dry_run or options.print or _only_reads(options)
    plans, left_out = [], []
    for name in NAMES:
        named = name in options.names
        if not named and (ALL_PLANS not in options.names or name in BY_NAME):
            continue
        plan = read(name)
        missing = [] if shows else [need for need in plan.scales[options.scale].needs if need not in settings]
        if missing and named:
            raise ValueError(
                f"{name} --scale {options.scale}: your own text is required; give it as "
                f"--set {' '.join(f'{need}=PATH' for need in missing)}, or choose --scale smoke"
            )
        if missing:
            left_out.append(name)
        else:
            plans.append(plan)
    return plans, left_out
