"""The report of a reproduction as Markdown: costs, figures and tables of plans, and findings with their comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from agents import figures
from agents.analysis import tables as line_tables
from agents.analysis import tables_text
from agents.analysis.markdown import table
from agents.analysis.measures import UNITS
from agents.reproduction.claims.findings import JudgedFinding, family
from agents.reproduction.claims.setups import read_setup
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NO_EQUAL_SIZE, NOT_RUN, UNDECIDED, PairedComparison
from agents.reproduction.cost import Cost
from agents.reproduction.outcome import Outcome
from agents.reproduction.plans import Plan
from agents.reproduction.tables import cer_by_wait, perplexities
from agents.runs.load import FinishedRun

DATA = {"cifar": "CIFAR-10", "mnist": "MNIST", "text": "text", "ablation": "CIFAR-10, first version"}
RULE = """\
A comparison is a difference, paired over the seeds that both sides have: mean ± 95 % interval. It holds if the interval
lies on the predicted side of zero, is contradicted if the interval lies on the other side, and is undecided otherwise
or with one seed. A finding does not hold if one of its comparisons is contradicted, and is undecided if one of them is
undecided. Otherwise it holds, or holds where run if some of its comparisons were not run. A method that grows is
compared with a fixed method of equal size, if one was run. Verdicts are not corrected for the number of comparisons: of
forty comparisons without a difference, one is expected to hold and one to be contradicted. d is the mean difference
divided by its standard deviation between seeds.
"""


def notes(plans: Iterable[Plan], scale: str) -> list[str]:
    """Return the differences of a scale from the paper, once for each family of findings."""
    found = [read_setup(family(id), scale).note for plan in plans for id in plan.findings]
    return [note for note in dict.fromkeys(found) if note]


def costs_table(costs: Iterable[tuple[str, str, Cost]]) -> str:
    """Return a table of the costs of plans, given as (plan, scale, cost)."""
    rows = [
        (name, scale, f"{cost.runs:,}", flops(cost.training), _two_digits(cost.seconds / 3600), size(cost.bytes))
        for name, scale, cost in costs
    ]
    return table(("plan", "scale", "runs", "training FLOPs", "hours of one core", "disk"), rows, right=(2, 3, 4, 5))


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
        if plan.text:
            parts.append(perplexities(runs, read_setup("text", outcome.scale).updates))
        else:
            parts += map(tables_text.markdown, line_tables.compare(runs, plan.by))
            parts += filter(None, [cer_by_wait(runs)])
    return "\n".join(parts)


def _figure(kind: str, runs: Sequence[FinishedRun], stem: Path, formats: Sequence[str]) -> str:
    try:
        drawing = figures.draw(kind, runs)
    except ValueError as error:  # the figure needs more runs
        return f"{kind}: not drawn. {error}\n"
    files = figures.save(drawing, stem, formats)
    shown = next((file for file in files if file.suffix in (".png", ".svg")), None)
    links = " ".join(f"[{file.suffix[1:]}]({file.name})" for file in files if file != shown)
    return (f"![{kind}]({shown.name})\n" if shown else "") + (f"\n{links}\n" if links else "")


def findings_table(judged: Iterable[JudgedFinding]) -> str:
    """Return a table of findings: verdict, number of comparisons by verdict, and weakest comparison."""
    rows = [
        (
            DATA[one.finding.family],
            one.finding.statement,
            f"**{one.verdict}**" if one.with_runs else one.verdict,
            counts(one),
            weakest(one) or "–",
        )
        for one in judged
    ]
    return table(("data", "finding", "verdict", "comparisons", "weakest comparison: difference ± 95 %"), rows)


def counts(judged: JudgedFinding) -> str:
    """Return the number of comparisons by verdict as text."""
    texts = {HOLDS: "hold"} | {verdict: verdict for verdict in (CONTRADICTED, UNDECIDED, NOT_RUN, NO_EQUAL_SIZE)}
    return ", ".join(f"{number} {text}" for verdict, text in texts.items() if (number := judged.count(verdict)))


def weakest(judged: JudgedFinding) -> str:
    """Return the comparison that supports a finding least, with its difference; empty if no comparison has runs."""
    one = judged.weakest
    return "" if one is None else f"{one.label}: {_difference(one)} {one.quantity}"


def comparisons_table(judged: JudgedFinding) -> str:
    """Return a table of the comparisons of a finding that have runs."""
    rows = [
        (
            one.label,
            one.quantity,
            {"below": "< 0", "above": "> 0", "close": f"within ± {one.tolerance:.3g}"}[one.predicted],
            _difference(one),
            "–" if one.effect is None else f"{one.effect:+.1f}".replace("-", "−"),
            str(one.interval.n),
            one.verdict,
        )
        for one in judged.with_runs
        if one.interval is not None
    ]
    return table(("difference", "of", "predicted", "mean ± 95 %", "d", "seeds", "verdict"), rows)


def findings_section(judged: Sequence[JudgedFinding]) -> str:
    """Return the section on the findings: their table, the rule of the verdicts, and the comparisons."""
    parts = ["## The paper's findings\n", findings_table(judged), RULE]
    for one in judged:
        if one.with_runs:
            parts += [f"### {one.finding.id}: {one.finding.statement}\n", comparisons_table(one)]
            if one.count(NOT_RUN):
                parts.append(f"{one.count(NOT_RUN)} more comparisons were not run.\n")
            unequal = [other.label for other in one.comparisons if other.verdict == NO_EQUAL_SIZE]
            if unequal:
                parts.append(f"Comparisons {NO_EQUAL_SIZE}: {'; '.join(unequal)}.\n")
    return "\n".join(parts)


def _difference(comparison: PairedComparison) -> str:
    interval = comparison.interval
    if interval is None:
        return "–"
    largest = max(abs(interval.mean), interval.half or 0.0)
    digits = 4 if largest < 0.1 else 3 if largest < 1 else 2 if largest < 100 else 1
    return interval.text(f"+.{digits}f").replace("-", "−")
