"""What a reproduction found, as Markdown: the findings with their verdicts, and every comparison behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agents.reproduction.cost import Cost
from agents.reproduction.findings import Judged
from agents.reproduction.verdicts import CONTRADICTED, HOLDS, NONE_OF_ITS_SIZE, NOT_RUN, UNDECIDED, Comparison
from agents.statistics import Interval

DATA = {"cifar": "CIFAR-10", "mnist": "MNIST", "text": "text", "ablation": "CIFAR-10, first version"}
RULE = """\
A comparison is a difference over the seeds that both were run with, mean ± 95 % interval. It holds where the interval
lies on the predicted side of zero, is contradicted where it lies on the other, and is undecided otherwise and with one
seed. A finding does not hold where a comparison is contradicted, and is undecided where one is; else it holds or, where
some of its comparisons were not run, holds where run. What grows is compared with a fixed method of its size; what
outgrows all widths that were run has none. There is no correction for the number of comparisons: of forty without a
difference, one is expected to hold and one to be contradicted. d is the mean difference over its standard deviation
between seeds.
"""


def findings_table(judged: Iterable[Judged]) -> str:
    """The findings, a line for each: verdict, comparisons by verdict, and that which speaks least for it."""
    rows = [
        (
            DATA[one.finding.family],
            one.finding.says,
            f"**{one.verdict}**" if one.run else one.verdict,
            counts(one),
            weakest(one) or "–",
        )
        for one in judged
    ]
    return table(("on", "finding", "verdict", "comparisons", "the weakest: difference ± 95 %"), rows)


def comparisons_table(judged: Judged) -> str:
    """Every comparison of a finding that was run, a line for each."""
    rows = [
        (
            one.what,
            one.measure,
            _predicted(one),
            _number(one.interval),
            "–" if one.effect is None else f"{one.effect:+.1f}".replace("-", "−"),
            str(one.interval.n),
            one.verdict,
        )
        for one in judged.run
        if one.interval is not None
    ]
    return table(("difference", "of", "predicted", "mean ± 95 %", "d", "seeds", "verdict"), rows)


def findings_section(judged: Sequence[Judged]) -> str:
    """The findings, the rule by which they are judged, and the comparisons."""
    parts = ["## The paper's findings\n", findings_table(judged), RULE]
    for one in judged:
        if one.run:
            parts.append(f"### {one.finding.id}: {one.finding.says}\n")
            parts.append(comparisons_table(one))
            if one.count(NOT_RUN):
                parts.append(f"{one.count(NOT_RUN)} more were not run.\n")
            outgrown = [other.what for other in one.comparisons if other.verdict == NONE_OF_ITS_SIZE]
            if outgrown:
                parts.append(f"Runs, but none of that size: {'; '.join(outgrown)}.\n")
    return "\n".join(parts)


def counts(judged: Judged) -> str:
    """How many of its comparisons have which verdict."""
    verdicts = {HOLDS: "hold"} | {same: same for same in (CONTRADICTED, UNDECIDED, NOT_RUN, NONE_OF_ITS_SIZE)}
    there = [(judged.count(verdict), plural) for verdict, plural in verdicts.items()]
    return ", ".join(f"{number} {plural}" for number, plural in there if number)


def weakest(judged: Judged) -> str:
    """The comparison that speaks least for a finding, with its difference; empty where none was run."""
    one = judged.weakest
    return "" if one is None else f"{one.what}: {_number(one.interval)} {one.measure}"


def costs_table(costs: Iterable[tuple[str, str, Cost]]) -> str:
    """What plans cost: name, scale, cost."""
    rows = [
        (name, scale, f"{cost.runs:,}", flops(cost.training), hours(cost.seconds), size(cost.bytes))
        for name, scale, cost in costs
    ]
    return table(("plan", "scale", "runs", "training FLOPs", "hours of one core", "disk"), rows, right=(2, 3, 4, 5))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table, with a line end behind it; the columns in ``right`` are aligned so."""
    lines = [
        _line(_escaped(headings)),
        _line(["---:" if place in right else "---" for place in range(len(headings))]),
        *(_line(_escaped(row)) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _escaped(cells: Iterable[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]


def flops(number: float) -> str:
    """FLOPs with two digits and a unit letter.

    >>> flops(3.86e12), flops(2.44e20)
    ('3.9 T', '240 E')
    """
    for limit, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= limit:
            return f"{_two_digits(number / limit)} {letter}"
    return _two_digits(number)


def hours(seconds: float) -> str:
    """Hours of so many seconds, with two digits.

    >>> hours(120), hours(4e5)
    ('0.033', '110')
    """
    return _two_digits(seconds / 3600)


def size(number: float) -> str:
    """Bytes with two digits and a unit.

    >>> size(250_000), size(3.2e9)
    ('0.25 MB', '3.2 GB')
    """
    return f"{_two_digits(number / 1e9)} GB" if number >= 1e9 else f"{_two_digits(number / 1e6)} MB"


def _two_digits(value: float) -> str:
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    scale = max(abs(interval.mean), interval.half or 0.0)
    digits = 4 if scale < 0.1 else 3 if scale < 1 else 2 if scale < 100 else 1
    return interval.text(f"+.{digits}f").replace("-", "−")


def _predicted(one: Comparison) -> str:
    return {"below": "< 0", "above": "> 0", "close": f"within ± {one.tolerance:.3g}"}[one.predicted]
