"""``alma policy push | pull`` and ``alma runs push | pull``: the Hugging Face Hub."""

from __future__ import annotations

import argparse

from rich.console import Console

from agents.hub import policies, recorded_runs
from agents.runs import load
from agents.sweeps.progress import say


def push_policy(options: argparse.Namespace, console: Console) -> int:
    """Put a learned policy into a repository or folder."""
    seen = policies.push(options.file, options.to, private=options.private, replace=options.replace)
    say(console, f"{seen}: alma policy pull {options.to} --out policy.zip")
    return 0


def pull_policy(options: argparse.Namespace, console: Console) -> int:
    """Fetch a learned policy."""
    policies.pull(options.place, options.out, revision=options.revision)
    say(console, f"{options.out}: to use it runs code of its author; if you trust {options.place}:")
    say(console, f"alma run … --policy {options.out}")
    return 0


def push_runs(options: argparse.Namespace, console: Console) -> int:
    """Put finished runs into a repository or folder."""
    kept = recorded_runs.is_replaced_by_push(options.to, options.paths)  # the new file holds the runs of the old one
    runs, left_out = load.find(*options.paths, strict=kept)  # runs that cannot be read would be lost
    say(console, *left_out)
    seen = recorded_runs.push(runs, options.to, private=options.private, replace=kept or options.replace)
    say(console, f"{seen}: {len(runs)} runs; alma runs pull {options.to} --out runs.jsonl.xz")
    return 0


def pull_runs(options: argparse.Namespace, console: Console) -> int:
    """Fetch finished runs."""
    recorded_runs.pull(options.place, options.out, revision=options.revision)
    runs, _ = load.find(options.out)
    say(console, f"{options.out}: {len(runs)} runs; alma show {options.out}")
    return 0
