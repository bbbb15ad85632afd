"""``alma pack``: finished runs in one small file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from agents import finished, packed
from agents.console import say


def add_to(commands: Any) -> None:
    """Add ``pack`` to the subcommands of ``alma``."""
    pack = commands.add_parser("pack", help="put finished runs into one small file, without their checkpoints")
    pack.set_defaults(command=_pack)
    pack.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="folders of runs, or packed files to join")
    pack.add_argument("--out", type=Path, required=True, help=f"file to write, *{packed.SUFFIX}")


def _pack(options: argparse.Namespace, console: Console) -> int:
    packed.require_name(options.out)  # before minutes of reading
    runs, left_out = finished.find(*options.paths)
    if not runs:
        raise ValueError(f"{' '.join(map(str, options.paths))}: no finished run; let one end first")
    packed.write(runs, options.out)
    size = options.out.stat().st_size
    for message in [*left_out, f"{options.out}: {len(runs)} runs, {size / 1024:,.0f} KiB"]:
        say(console, message)
    return 0
