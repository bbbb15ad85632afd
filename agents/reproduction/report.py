"""The report of a reproduction as Markdown: costs of plans, and their figures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agents import figures
from agents.analysis import tables as line_tables
from agents.analysis import tables_text
from agents.analysis.markdown import table
from agents.analysis.measures import UNITS
from agents.catalogue.spec import distinct
from agents.reproduction.claims.findings import family
from agents.reproduction.claims.setups import read_setup
from agents.reproduction.cost import Cost, cost_of
from agents.reproduction.outcome import Outcome
from agents.reproduction.plans import Plan
from agents.reproduction.tables import cer_by_wait, perplexities
from agents.runs.load import FinishedRun


def notes(plans: Iterable[Plan], scale: str) -> list[str]:
    """Return the differences of a scale from the paper, once for each family of findings."""
    found = [read_setup(family(id), scale).note for plan in plans for id in plan.findings]
    return [note for note in dict.fromkeys(found) if note]


_COSTS = ("runs", "training FLOPs", "hours of one core", "disk")


def costs_table(costs: Iterable[tuple[str, str, Cost]]) -> str:
    """Return a table of the costs of plans, given as (plan, scale, cost)."""
    rows = [(name, scale, *_cost_texts(cost)) for name, scale, cost in costs]
    return table(("plan", "scale", *_COSTS), rows, right=(2, 3, 4, 5))


def remaining_table(outcomes: Sequence[Outcome], slowness: Mapping[str, float]) -> str:
    """Return a table of the finished runs of plans, and of the costs of the missing ones; the last line is the total.

    A run that several plans need counts once in the total. ``slowness`` is that of `cost_of`.
    """
    missing = distinct(spec for outcome in outcomes for spec in outcome.missing)
    finished = {id(run): run for outcome in outcomes for run in outcome.runs}
    rows = [
        (one.plan.name, one.scale, f"{len(one.runs):,}", *_cost_texts(cost_of(one.missing, slowness)))
        for one in outcomes
    ]
    if len(outcomes) > 1:
        together = cost_of(missing, slowness)
        rows.append(("together", outcomes[0].scale, f"{len(finished):,}", *_cost_texts(together)))
    headings = ("plan", "scale", "finished runs", *(f"missing: {heading}" for heading in _COSTS))
    return table(headings, rows, right=(2, 3, 4, 5, 6))


def _cost_texts(cost: Cost) -> tuple[str, ...]:
    return f"{cost.runs:,}", flops(cost.training), hours(cost.seconds), size(cost.bytes)


def hours(seconds: float) -> str:
    """Return seconds as hours with two digits.

    >>> hours(120), hours(400_000)
    ('0.033', '110')
    """
    return _two_digits(seconds / 3600)


def flops(number: float) -> str:
    """Return FLOPs with two digits and a unit letter.

    >>> flops(3.86e12), flops(2.44e20)
    ('3.9 T', '240 E')
    """
    for limit, letter in UNITS[:-1]:  # without k
        if number >= limit:
            return f"{_two_digits(number / limit)} {letter}"
    return _two_digits(number)


def size(number: float) -> str:
    """Return bytes with two digits and a unit.

    >>> size(250_000), size(3.2e9)
    ('0.25 MB', '3.2 GB')
    """
    return f"{_two_digits(number / 1e9)} GB" if number >= 1e9 else f"{_two_digits(number / 1e6)} MB"


def _two_digits(value: float) -> str:
    """Return a number with two digits: 0.0333 is ``0.033``, 111 is ``110``."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def plan_section(outcome: Outcome, out: Path, formats: Sequence[str]) -> str:
    """Draw the figures of a plan into a folder, and return the Markdown that shows them and the plan's tables."""
    plan, runs = outcome.plan, outcome.runs
    parts = [f"## {plan.name}: {plan.title}\n"]
    if runs:
        parts += [_figure(kind, runs, out / f"{plan.name}-{kind}", formats) for kind in plan.figures]
        if not plan.text:
            parts += map(tables_text.markdown, line_tables.compare(runs, plan.by))
        parts += filter(None, [scores(outcome)])
    return "\n".join(parts)


def scores(outcome: Outcome) -> str:
    """Return the table of a plan's perplexities, or of its CER by waiting time; empty if there is no such table."""
    if outcome.plan.text:
        return perplexities(outcome.runs, read_setup("text", outcome.scale).updates)
    return cer_by_wait(outcome.runs)


def _figure(kind: str, runs: Sequence[FinishedRun], stem: Path, formats: Sequence[str]) -> str:
    try:
        drawing = figures.draw(kind, runs)
    except ValueError as error:  # the figure needs more runs
        return f"{kind}: not drawn. {error}\n"
    files = figures.save(drawing, stem, formats)
    shown = next((file for file in files if file.suffix in (".png", ".svg")), None)
    others = [file for file in files if file != shown and file.suffix != ".md"]  # the table is in the report
    links = " ".join(f"[{file.suffix[1:]}]({file.name})" for file in others)
    parts = [f"![{kind}]({shown.name})\n" if shown else "", f"{links}\n" if links else "", drawing.table]
    return "\n".join(filter(None, parts))
