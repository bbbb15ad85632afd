"""The figures and tables of a plan, from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents import figures
from agents.cells import cells_of
from agents.finished import FinishedRun
from agents.report import engineering
from agents.reproduction.perplexities import perplexities
from agents.reproduction.plan import Drawn, Plan
from agents.reproduction.report import table


def section(plan: Plan, runs: Sequence[FinishedRun], out: Path, formats: Sequence[str]) -> str:
    """Draw a plan's figures into a folder; the Markdown that shows them, with its table.

    Args:
        plan: says what is drawn.
        runs: its runs, as far as there are any.
        out: the folder.
        formats: of the figures.
    """
    parts = [f"## {plan.name}: {plan.title}\n"]
    if runs:
        parts += [_figure(draw, runs, out / f"{plan.name}-{draw.kind}", formats) for draw in plan.draws]
        parts.append(perplexities(runs) if plan.text else scores(runs))
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


def scores(runs: Sequence[FinishedRun]) -> str:
    """A line for each setting: mean ± 95 % interval over its seeds."""
    rows = [
        (
            cell.name,
            str(len(cell.runs)),
            cell.interval(lambda score: score.cer).text(".2f"),
            cell.interval(lambda score: score.final_error).text(".3f"),
            engineering(cell.interval(lambda score: score.mem).mean),
            engineering(cell.interval(lambda score: score.comp).mean),
            engineering(cell.interval(lambda score: score.paper_flops).mean),
        )
        for cell in cells_of(runs)[0]
    ]
    return table(("agent", "seeds", "CER", "final error", "Mem", "Comp", "training FLOPs"), rows, right=range(1, 7))
