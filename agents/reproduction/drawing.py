"""The figures and tables of a plan, from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.finished import FinishedRun
from agents.reproduction.perplexities import perplexities
from agents.reproduction.plan import Plan

FORMATS = ("png", "svg", "pdf", "csv")


def section(plan: Plan, runs: Sequence[FinishedRun], out: Path, formats: Sequence[str]) -> str:
    """Draw a plan's figures into a folder; the Markdown that shows them, with its table.

    Args:
        plan: says what is drawn.
        runs: its runs, as far as there are any.
        out: the folder.
        formats: of the figures.
    """
    parts = [f"## {plan.name}: {plan.title}\n"]
    if not runs:
        return "\n".join([*parts, "No run.\n"])
    from agents import figures  # loads matplotlib

    for draw in plan.draws:
        files = figures.save(figures.draw(draw.kind, runs, **draw.options), out / f"{plan.name}-{draw.kind}", formats)
        shown = next((file for file in files if file.suffix in (".png", ".svg")), None)
        parts.append(f"![{draw.kind}]({shown.name})\n" if shown else "".join(f"[{f.name}]({f.name})\n" for f in files))
    if plan.text:
        parts.append(perplexities(runs))
    return "\n".join(parts)
