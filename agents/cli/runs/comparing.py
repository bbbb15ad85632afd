"""The command ``alma policy compare``: finished runs beside the best fixed waiting time."""

from __future__ import annotations

import argparse
from statistics import mean
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.analysis.measures import DECLARED, OVER_BUDGET, engineering, explain, marked
from agents.analysis.prices import Prices
from agents.analysis.schedules import waiting_comparison
from agents.cli import json_output
from agents.cli.console import print_uncut
from agents.cli.runs.finished_runs import picture_folder
from agents.figures import waiting
from agents.figures.files import require_picture
from agents.runs import load
from agents.sweeps.progress import say


def _lines(comparison: waiting_comparison.WaitingComparison) -> list[dict[str, Any]]:
    """The schedules of a comparison as data, for other programs."""
    return [
        {
            "compared": comparison.title,
            "when": schedule.name,
            "wait": schedule.wait,
            "cost": schedule.cost,
            "costs_by_seed": schedule.costs,
            "comps_by_seed": schedule.comps,
            "best_fixed": schedule is comparison.best_fixed,
            "minus_best_fixed": comparison.against_best_fixed(schedule),
            "over_budget": OVER_BUDGET in schedule.marks,
            "declared": DECLARED in schedule.marks,
        }
        for schedule in comparison.schedules
    ]


def compare(options: argparse.Namespace, console: Console) -> int:
    """Compare finished runs with the best fixed waiting time, in a table and a picture."""
    prices = Prices(options.flops_price, options.parameter_price)
    require_picture(options.picture)
    found, left_out = load.find(options.folder)
    said = json_output.messages(console, as_json=options.json)
    say(said, *left_out)
    if not found:
        raise ValueError(f"{options.folder}: it holds no finished run; finish one first")
    heading = "CER" if not any((prices.flops, prices.parameters)) else "CER, FLOPs and parameters at their prices"
    comparisons = waiting_comparison.compare(found, prices)
    say(said, *dict.fromkeys(message for one in comparisons for message in one.notes))
    without = [one.title for one in comparisons if one.best_fixed is None]
    say(said, *(f"{title}: no run has a fixed waiting time; add runs of alma run … --wait 1 2 5" for title in without))
    if options.json:
        json_output.write([line for one in comparisons for line in _lines(one)])
        if options.picture:
            say(said, f"Picture: {waiting.draw(comparisons, options.picture, heading=heading)}")
        return 0
    for one in comparisons:
        table = Table("when", "n", heading, "Comp", "minus best fixed wait", box=None, title=one.title)
        for schedule in one.schedules:
            difference = one.against_best_fixed(schedule)
            table.add_row(
                escape(marked(schedule.name, schedule.marks)),
                str(schedule.cost.n),
                schedule.cost.text(),
                engineering(mean(schedule.comps.values())),
                "best fixed" if schedule is one.best_fixed else "" if difference is None else difference.text("+.2f"),
            )
        print_uncut(console, table)
        console.print()
    legend = "n: seeds; ±: 95 % interval over seeds (Student's t); differences are paired by seed."
    marks = explain(schedule.marks for one in comparisons for schedule in one.schedules)
    console.print(" ".join([legend, *marks]), highlight=False)
    file = options.picture or picture_folder(options.folder) / "waiting.png"
    try:
        picture = waiting.draw(comparisons, file, heading=heading)
    except OSError as error:
        if options.picture:
            raise
        say(console, f"No picture: {error}; choose its file with --picture")
        return 0
    say(console, f"Picture: {picture}")
    return 0
