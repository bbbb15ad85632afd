"""``alma plot``: figures of finished runs."""

from __future__ import annotations

import argparse
import re

from rich.console import Console

from agents import figures
from agents.analysis.measures import measure_of
from agents.analysis.seed_groups import streams
from agents.cli.runs.finished_runs import chosen_runs
from agents.figures.files import require_formats
from agents.sweeps.progress import say
from alma_env.errors import did_you_mean


def plot(options: argparse.Namespace, console: Console) -> int:
    """Draw one kind of figure of finished runs: one file per stream, or one file if the kind shows several streams.

    A stream that cannot be drawn is left out with its reason; the exit status is 1 if no stream is left.
    """
    said = Console(stderr=True) if options.print else console
    require_formats(options.format)
    if options.out.suffix.removeprefix(".") in figures.FORMATS:
        raise ValueError(
            f"--out {options.out}: must be a folder, whose files are named after the kind; give a folder, and "
            f"--format {options.out.suffix[1:]}"
        )
    kind = options.kind
    if kind not in figures.KINDS:
        hint = did_you_mean(kind, figures.KINDS)
        raise ValueError(f"kind {kind!r}: unknown; the kinds of figures are {', '.join(figures.KINDS)}{hint}")
    if options.print and not figures.KINDS[kind].has_table:
        with_table = ", ".join(name for name, its in figures.KINDS.items() if its.has_table)
        raise ValueError(f"--print with {kind}: its figure has no table; choose one of {with_table}, or leave it out")
    names = ("panels", "flops_price", "parameter_price", "layer")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    for name in given:
        if name not in figures.KINDS[kind].options:
            owner = next(other for other, its in figures.KINDS.items() if name in its.options)
            raise ValueError(f"--{name.replace('_', '-')} with {kind}: it is an option of {owner}; leave it out")
    of = streams(chosen_runs(options, said))
    measures = figures.KINDS[kind].measures
    fitting = {name: runs for name, runs in of.items() if measure_of(runs[0].run_config.protocol) in measures}
    if not fitting:
        name, runs = next(iter(of.items()))
        figures.require_measure(kind, name, runs[0])
    say(said, *(f"{name}: left out, because {kind} cannot show its measure" for name in of if name not in fitting))
    together = figures.KINDS[kind].several_streams and len(fitting) > 1
    drawn = {", ".join(fitting): [run for runs in fitting.values() for run in runs]} if together else fitting
    errors: dict[str, ValueError] = {}
    for name, runs in drawn.items():
        try:
            drawing = figures.draw(kind, runs, **given)
        except ValueError as error:
            errors[name] = error
            continue
        stem = kind if len(drawn) == 1 else "-".join([kind, re.sub(r"[^\w.=-]+", "-", name)])
        say(said, *drawing.notes)
        if options.print:
            title = f"{name}\n\n" if len(drawn) > 1 else ""
            console.print(f"{title}{drawing.table}", end="", markup=False, highlight=False, soft_wrap=True)
            continue
        files = figures.save(drawing, options.out / stem, options.format)
        say(console, *(f"{file}: {kind} of {len(runs)} runs on {name}" for file in files))
    if len(errors) == len(drawn) and len({str(error) for error in errors.values()}) == 1:
        raise next(iter(errors.values()))  # of an option, or of the only stream
    say(said, *(f"{name}: left out: {error}" for name, error in errors.items()))
    return 1 if len(errors) == len(drawn) else 0
