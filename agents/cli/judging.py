"""The command ``alma policy judge``: learned schedules beside their rivals, at prices."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agents.analysis.priced_comparison import compare_at_prices
from agents.cli import json_output
from agents.runs import load
from agents.sweeps.progress import say


def judge(options: argparse.Namespace, console: Console) -> int:
    """Print what learned schedules cost beside their rivals, each at its own price."""
    runs, said = [], json_output.messages(console, as_json=options.json)
    for folder in options.folder:
        found, left_out = load.find(folder)
        say(said, *left_out)
        runs += found
    rivalries, fronts, notes = compare_at_prices(runs)
    say(said, *dict.fromkeys(notes))
    if options.json:
        json_output.write({"rivalries": rivalries, "fronts": fronts})
        return 0
    schedule = Column("schedule of the rival", overflow="fold")
    numbers = ("its cost", "learned", "learned − rival", "p", "worst seed", "of the rival")
    table = Table("runs", "full pass", "rival", schedule, *numbers, box=None)
    for one in rivalries:
        table.add_row(
            one.runs,
            f"{one.pass_price:g}",
            one.rival,
            escape(one.schedule),
            one.rival_cost.text(),
            one.cost.text(),
            "no common seed" if one.difference is None else one.difference.text("+.2f"),
            "" if one.p is None else f"{one.p:.2g}",
            f"{one.worst:.2f}",
            f"{one.rival_worst:.2f}",
        )
    console.print(table)
    volumes = Table("runs", "schedules", "hypervolume", "learned minus this", box=None)
    for front in fronts:
        difference = front.difference.text("+.3f") if front.difference and front.schedules != "learned" else ""
        volumes.add_row(front.runs, front.schedules, front.hypervolume.text(".3f"), difference)
    console.print(volumes)
    legend = (
        "Cost: CER and FLOPs at the price, in errors, mean over seeds; ±: 95 % interval (Student's t); differences are "
        "paired by seed; p: paired t-test with Holm's correction over the prices; hypervolume: of the "
        "front of CER and full passes up to two passes, as a share"
    )
    console.print(legend, highlight=False)
    return 0
