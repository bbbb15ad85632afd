"""The figures and tables of a plan, from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents import figures, tables, tables_text
from agents.finished import FinishedRun
from agents.reproduction.cer_by_wait import cer_by_wait
from agents.reproduction.perplexities import perplexities
from agents.reproduction.plan import Drawn, Plan
from agents.reproduction.setting import setting


def section(plan: Plan, scale: str, runs: Sequence[FinishedRun], out: Path, formats: Sequence[str]) -> str:
    """Draw a plan's figures into a folder; the Markdown that shows them, with its table.

    Args:
        plan: says what is drawn.
        scale: at which it was run.
        runs: its runs, as far as there are any.
        out: the folder.
        formats: of the figures.
    """
    parts = [f"## {plan.name}: {plan.title}\n"]
    if runs:
        parts += [_figure(draw, runs, out / f"{plan.name}-{draw.kind}", formats) for draw in plan.draws]
        parts += [perplexities(runs, setting("text", scale).updates)] if plan.text else _tables(plan, runs)
    return "\n".join(parts)


def _figure(draw: Drawn, runs: Sequence[FinishedRun], stem: Path, formats: Sequence[str]) -> str:
    try:
        drawing = figures.draw(draw.kind, runs, **draw.options)
    except ValueError as error:  # too few of the runs are there
        return f"{draw.kind}: not drawn. {error}\n"
    files = figures.save(drawing, stem, formats)
    shown = next((file for file in files if file.suffix in (".png", ".svg")), None)
    links = " ".join(f"[{file.suffix[1:]}]({file.name})" for file in files if file != shown)
    return (f"![{draw.kind}]({shown.name})\n" if shown else "") + (f"\n{links}\n" if links else "")


def _tables(plan: Plan, runs: Sequence[FinishedRun]) -> list[str]:
    compared = [tables_text.markdown(comparison) for comparison in tables.compare(runs, plan.by)]
    return [*compared, *filter(None, [cer_by_wait(runs)])]
