"""The finished runs below a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import runs
from alma_env import Ledger


@dataclass(frozen=True)
class FinishedRun:
    """A run that came to the end of its stream.

    Attributes:
        folder: where it lies.
        config: everything that its numbers depend on.
        ledger: one row per tick.
    """

    folder: Path
    config: dict[str, Any]
    ledger: Ledger


def find(folder: Path) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs in or below a folder, each configuration once; and what was left out, in words.

    Raises:
        ValueError: there is no run at all, or one cannot be read.
    """
    files = sorted(folder.rglob("ledger.jsonl"))
    if not files:
        raise ValueError(f"{folder}: no ledger.jsonl in or below it; give a folder that `alma run` wrote")
    found: dict[str, FinishedRun] = {}  # by their whole configuration
    left_out = []
    for path in [file.parent for file in files]:
        run = FinishedRun(path, runs.read_config(path), runs.read_ledger(path))
        key = json.dumps(run.config, sort_keys=True)
        missing = run.config["protocol"]["ticks"] + 1 - len(run.ledger)
        if missing:
            left_out.append(f"{path}: unfinished, {missing} ticks to go; left out")
        elif key in found:
            left_out.append(f"{path}: the same run as {found[key].folder}; counted once")
        else:
            found[key] = run
    return list(found.values()), left_out
