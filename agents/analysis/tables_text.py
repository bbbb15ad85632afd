"""Comparison tables as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agents.analysis.markdown import table
from agents.analysis.measures import DECLARED, OVER_BUDGET, explain, marked, unit_of
from agents.analysis.statistics import ALPHA, Interval
from agents.analysis.tables import HIGHER, LOWER, UNTESTED, Comparison, Entry, columns_of


def markdown(comparison: Comparison) -> str:
    """Return a table in GitHub's Markdown, with the caption below it."""
    headings = _headings(comparison)
    right = [number for number, heading in enumerate(headings) if heading not in ("compared", "setting")]
    return f"{table(headings, _cells(comparison, str, '**{}**', {}), right)}\n{caption(comparison)}\n"


def latex(comparison: Comparison) -> str:
    """Return a LaTeX table that uses the package booktabs."""
    headings = _headings(comparison)
    left = sum(heading in ("compared", "setting") for heading in headings)
    out = [r"\begin{table}", r"\centering"]
    out += [r"\begin{tabular}{" + "l" * left + "r" * (len(headings) - left) + "}"]
    out += [r"\toprule", " & ".join(map(_escape, headings)) + r" \\"]
    rows = _cells(comparison, _escape, r"\textbf{{{}}}", _MARKS)
    for number, cells in enumerate(rows):
        if number == 0 or (cells[0] and "compared" in headings):
            out.append(r"\midrule")
        out.append(" & ".join(cells) + r" \\")
    out += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escape(caption(comparison))}}}", r"\end{table}"]
    return "\n".join(out) + "\n"


def comma_separated(*comparisons: Comparison) -> str:
    """Return tables as CSV, with one header, and one line for each number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(row for one in comparisons for row in _numbers(one))
    return out.getvalue()


def as_json(*comparisons: Comparison) -> str:
    """Return tables as one JSON list, with one object for each number; its names are the columns of the CSV."""
    rows = [row for one in comparisons for row in _numbers(one)]
    finite = [[None if isinstance(v, float) and not math.isfinite(v) else v for v in row] for row in rows]
    return json.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in finite], indent=2, ensure_ascii=False) + "\n"


def _numbers(comparison: Comparison) -> Iterator[list[Any]]:
    """Yield the values of `_COLUMNS` for each number of a table."""
    for line in comparison.lines:
        for column, entry in line.entries.items():
            mean = [entry.interval.mean, entry.interval.half, entry.best]
            paired = entry.difference
            test = [paired.mean, paired.half, paired.n] if paired else [None, None, None]
            test += [entry.p, None if entry.p is None else entry.p < ALPHA]
            marks = [OVER_BUDGET in line.marks, DECLARED in line.marks]
            yield [line.group, line.name, line.seeds, column, *mean, comparison.against, *test, *marks]


_COLUMNS = (
    *("compared", "setting", "seeds", "measure", "mean", "half", "best", "against"),
    *("difference", "difference_half", "common_seeds", "p_holm", "significant"),
    *("over_budget", "declared"),
)
ENDINGS = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "json": ".json"}


def caption(comparison: Comparison) -> str:
    """Return the explanation of the numbers and marks of a table."""
    marks = {entry.mark for line in comparison.lines for entry in line.entries.values()}
    seeds = {line.seeds for line in comparison.lines}
    measure = comparison.measure
    groups = list(dict.fromkeys(line.group for line in comparison.lines))
    parts = [f"{groups[0]}."] if len(groups) == 1 else []
    parts.append(f"{measure.heading}: {measure.meaning}. Mem: sum of parameters. Comp: FLOPs executed.")
    within = " within each group of lines" if len(groups) > 1 else ""
    if max(seeds) > 1:
        parts.append("Mean ± 95 % interval over seeds (Student's t); n: their number.")
        parts.append(f"Bold: the lowest mean of a column{within}.")
    else:
        parts.append("One seed each: no interval, and no test. Bold: the lowest of a column" + within + ".")
    if any(entry.p is not None for line in comparison.lines for entry in line.entries.values()):
        best = comparison.against == "the best"
        named = "the best line of the column" if best else comparison.against
        compared = "all pairs of lines in a column" + within if best else "the lines compared in a column"
        parts.append(
            f"{LOWER}, {HIGHER}: lower or higher than {named}, p < {ALPHA} in a paired t-test over common seeds, after "
            f"Holm's correction for {compared}; no mark: not significant."
        )
    if UNTESTED in marks and max(seeds) > 1:
        parts.append(f"{UNTESTED}: not tested, because the lines share fewer than two seeds.")
    return " ".join([*parts, *explain(line.marks for line in comparison.lines)])


def _headings(comparison: Comparison) -> list[str]:
    group = ["compared"] if len({line.group for line in comparison.lines}) > 1 else []
    return [*group, "setting", "n", *columns_of(comparison.measure)]


def _cells(
    comparison: Comparison, escape: Callable[[str], str], bold: str, marks: Mapping[str, str]
) -> list[list[str]]:
    """Return the texts of each line; only the first line of a group has the name of the group."""
    headings = _headings(comparison)
    rows, before = [], ""
    for line in comparison.lines:
        group = [escape(line.group * (line.group != before))] if "compared" in headings else []
        row = [*group, escape(marked(line.name, line.marks)), str(line.seeds)]
        for column, entry in line.entries.items():
            text = escape(_text(entry, comparison, column))
            row.append((bold.format(text) if entry.best else text) + marks.get(entry.mark, entry.mark))
        rows.append(row)
        before = line.group
    return rows


def _text(entry: Entry, comparison: Comparison, column: str) -> str:
    if column in ("Mem", "Comp"):
        return _with_unit(entry.interval)
    total_digits, error_digits = comparison.measure.digits
    return entry.interval.text(f".{total_digits if column == comparison.measure.heading else error_digits}f")


def _with_unit(interval: Interval) -> str:
    """Return mean and interval in the unit of the mean, without an interval of 0, such as Comp at a fixed size."""
    size, letter = unit_of(interval.mean)
    text = f"{interval.mean / size:.3g}"
    if interval.half:
        half = interval.half / size
        text += f" ± {half:.0f}" if half >= 99.5 else f" ± {half:.2g}"  # no exponent
    return f"{text} {letter}".rstrip()


_MARKS = {"": "", LOWER: r"$^\downarrow$", HIGHER: r"$^\uparrow$", UNTESTED: r"$^\ddagger$"}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    "Σ": r"$\Sigma$",
    LOWER: r"$\downarrow$",
    HIGHER: r"$\uparrow$",
    UNTESTED: r"$\ddagger$",
    OVER_BUDGET: r"$\dagger$",
    DECLARED: r"\S{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _escape(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


def joined(comparisons: Sequence[Comparison], form: str) -> str:
    """Return all tables in one format; tables in CSV share one header line, and tables in JSON are one list."""
    if form in ("csv", "json"):
        return {"csv": comma_separated, "json": as_json}[form](*comparisons)
    return "\n".join(map({"markdown": markdown, "latex": latex}[form], comparisons))
