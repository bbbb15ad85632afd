"""``alma plot``: figures of finished runs."""

from __future__ import annotations

import argparse
import re

from rich.console import Console

from agents import figures
from agents.analysis.seed_groups import streams
from agents.cli.finished_runs import chosen_runs
from agents.figures.files import require_formats
from agents.runs.load import FinishedRun
from agents.sweeps.progress import say


def plot(options: argparse.Namespace, console: Console) -> int:
    """Draw one kind of figure of finished runs, one file per stream."""
    require_formats(options.format)
    if options.out.suffix.removeprefix(".") in figures.FORMATS:
        raise ValueError(
            f"--out {options.out}: must be a folder, whose files are named after the kind; give a folder, and "
            f"--format {options.out.suffix[1:]}"
        )
    kind = options.kind
    if kind not in figures.KINDS:
        raise ValueError(f"kind {kind!r}: unknown; the kinds of figures are {', '.join(figures.KINDS)}")
    given = {name: getattr(options, name) for name in ("panels", "flops_price", "parameter_price", "layer")}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in figures.KINDS[kind].options:
            owner = next(other for other, its in figures.KINDS.items() if name in its.options)
            raise ValueError(f"--{name.replace('_', '-')} with {kind}: it is an option of {owner}; leave it out")
    of = streams(chosen_runs(options, console))
    fitting = {name: runs for name, runs in of.items() if _fits(kind, name, runs[0])}
    if not fitting:
        name, runs = next(iter(of.items()))
        figures.require_measure(kind, name, runs[0])
    for name in of:
        if name not in fitting:
            say(console, f"{name}: left out, because {kind} cannot show its measure")
    for name, runs in fitting.items():
        drawing = figures.draw(kind, runs, **given)
        stem = kind if len(fitting) == 1 else "-".join([kind, re.sub(r"[^\w.=-]+", "-", name)])
        for message in drawing.notes:
            say(console, message)
        for file in figures.save(drawing, options.out / stem, options.format):
            say(console, f"{file}: {kind} of {len(runs)} runs on {name}")
    return 0


def _fits(kind: str, stream: str, run: FinishedRun) -> bool:
    try:
        figures.require_measure(kind, stream, run)
    except ValueError:
        return False
    return True
