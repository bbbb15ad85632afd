"""``alma table``: finished runs in a table that can be published."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from agents import tables, tables_text
from agents.console import say
from agents.figures.cli import add_runs_to, chosen_runs


def add_to(commands: Any) -> None:
    """Add ``table`` to the subcommands of ``alma``."""
    table = commands.add_parser("table", help="compare finished runs in a table, with intervals and tests")
    table.set_defaults(command=_table)
    add_runs_to(table)
    table.add_argument("--format", default="markdown", choices=list(tables_text.FORMATS), help="default markdown")
    table.add_argument(
        "--by",
        nargs="+",
        default=["env"],
        metavar="KEY",
        help=f"what lines that are compared have in common: {', '.join(tables.KEYS)}; default env",
    )
    table.add_argument(
        "--against", metavar="LINE", help="agent or line to compare with; default the best of each column"
    )
    table.add_argument("--out", type=Path, help="file to write; its ending is that of the format where it has none")


def _table(options: argparse.Namespace, console: Console) -> int:
    comparisons = tables.compare(chosen_runs(options, console), options.by, options.against)
    text = tables_text.joined(comparisons, options.format)
    for note in dict.fromkeys(note for comparison in comparisons for note in comparison.notes):
        say(console, note)
    if options.out is None:
        say(console, text.rstrip("\n"))
        return 0
    ending = tables_text.FORMATS[options.format][0]
    file = options.out if options.out.suffix == ending else options.out.with_name(options.out.name + ending)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    say(console, f"{file}: {sum(len(comparison.lines) for comparison in comparisons)} lines")
    return 0
