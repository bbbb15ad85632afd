"""Comparison tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from agents.report import UNITS
from agents.statistics import Interval
from agents.tables import ALPHA, HIGHER, LOWER, UNTESTED, Comparison, Entry, Line, columns_of


def markdown(comparison: Comparison) -> str:
    """A table in GitHub's Markdown, with its caption below."""
    headings = _headings(comparison)
    ruler = [" --- " if heading in ("compared", "setting") else " ---: " for heading in headings]
    lines = ["| " + " | ".join(headings) + " |", "|" + "|".join(ruler) + "|"]
    for group, line in _texts(comparison):
        cells = [_plain(line.entries[column], comparison, column) for column in line.entries]
        shown = [
            f"**{text}**{entry.mark}" if entry.best else f"{text}{entry.mark}"
            for text, entry in zip(cells, line.entries.values(), strict=True)
        ]
        head = [*([group] if "compared" in headings else []), line.name, str(line.seeds)]
        lines.append("| " + " | ".join(text.replace("|", r"\|") for text in [*head, *shown]) + " |")
    return "\n".join([*lines, "", caption(comparison)]) + "\n"


def latex(comparison: Comparison) -> str:
    """A table with the rules of the package booktabs."""
    headings = _headings(comparison)
    left = sum(heading in ("compared", "setting") for heading in headings)
    out = [
        r"\begin{table}",
        r"\centering",
        r"\begin{tabular}{" + "l" * left + "r" * (len(headings) - left) + "}",
        r"\toprule",
        " & ".join(map(_escaped, headings)) + r" \\",
        r"\midrule",
    ]
    for number, (group, line) in enumerate(_texts(comparison)):
        if group and number:
            out.append(r"\midrule")
        shown = []
        for column, entry in line.entries.items():
            text = _escaped(_plain(entry, comparison, column))
            shown.append((rf"\textbf{{{text}}}" if entry.best else text) + _MARKS[entry.mark])
        head = [*([_escaped(group)] if "compared" in headings else []), _escaped(line.name), str(line.seeds)]
        out.append(" & ".join([*head, *shown]) + r" \\")
    out += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escaped(caption(comparison))}}}", r"\end{table}"]
    return "\n".join(out) + "\n"


def comma_separated(comparison: Comparison) -> str:
    """One line for each number, with all that was computed."""
    out = io.StringIO()
    names = ("compared", "setting", "seeds", "measure", "mean", "half", "best", "against")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "difference", "difference_half", "common_seeds", "p_holm", "significant"])
    for line in comparison.lines:
        for column, entry in line.entries.items():
            difference = entry.difference
            writer.writerow(
                [
                    line.group,
                    line.name,
                    line.seeds,
                    column,
                    entry.interval.mean,
                    entry.interval.half,
                    entry.best,
                    comparison.against,
                    *([difference.mean, difference.half, difference.n] if difference else [None, None, None]),
                    entry.p,
                    None if entry.p is None else entry.p < ALPHA,
                ]
            )
    return out.getvalue()


FORMATS: dict[str, tuple[str, Callable[[Comparison], str]]] = {
    "markdown": (".md", markdown),
    "latex": (".tex", latex),
    "csv": (".csv", comma_separated),
}


def caption(comparison: Comparison) -> str:
    """What the numbers and the marks are."""
    marks = {entry.mark for line in comparison.lines for entry in line.entries.values()}
    seeds = {line.seeds for line in comparison.lines}
    measure = comparison.measure
    groups = list(dict.fromkeys(line.group for line in comparison.lines))
    parts = [f"{groups[0]}."] if len(groups) == 1 else []
    parts.append(f"{measure.heading}: {measure.meaning}. Mem: sum of parameters. Comp: FLOPs executed.")
    if max(seeds) > 1:
        parts.append(
            "Mean ± 95 % interval over seeds (Student's t); n: their number. Bold: the lowest mean of a column."
        )
    else:
        parts.append("One seed each: no interval, and no test. Bold: the lowest of a column.")
    if any(entry.p is not None for line in comparison.lines for entry in line.entries.values()):
        best = comparison.against == "the best"
        named = "the best line of the column" if best else comparison.against
        allowed_for = "all pairs of lines in a column" if best else "the lines compared in a column"
        parts.append(
            f"{LOWER}, {HIGHER}: lower or higher than {named}, p < {ALPHA} in a paired t-test over common seeds, after "
            f"Holm's correction for {allowed_for}; without a mark: not told apart."
        )
    if UNTESTED in marks and max(seeds) > 1:
        parts.append(f"{UNTESTED}: fewer than two seeds in common with it, not tested.")
    return " ".join(parts)


def _headings(comparison: Comparison) -> list[str]:
    group = ["compared"] if len({line.group for line in comparison.lines}) > 1 else []
    return [*group, "setting", "n", *columns_of(comparison.measure)]


def _texts(comparison: Comparison) -> list[tuple[str, Line]]:
    """The lines, with the name of their group where it begins."""
    out = []
    before = None
    for line in comparison.lines:
        out.append((line.group if line.group != before else "", line))
        before = line.group
    return out


def _plain(entry: Entry, comparison: Comparison, column: str) -> str:
    of_sum, of_one = comparison.measure.digits
    if column in ("Mem", "Comp"):
        return _with_unit(entry.interval)
    return entry.interval.text(f".{of_sum if column == comparison.measure.heading else of_one}f")


def _with_unit(interval: Interval) -> str:
    """Both numbers in the unit of the mean; an interval of nothing, as of Comp at a fixed size, is not shown."""
    limit, letter = next(((limit, f" {letter}") for limit, letter in UNITS if interval.mean >= limit), (1.0, ""))
    half = f" ± {interval.half / limit:.2g}" if interval.half else ""
    return f"{interval.mean / limit:.3g}{half}{letter}"


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
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


def joined(comparisons: Sequence[Comparison], form: str) -> str:
    """All tables in one of the formats; of CSV, whose columns are the same in all, under one head."""
    texts = [FORMATS[form][1](comparison) for comparison in comparisons]
    return texts[0] + "".join(text.partition("\n")[2] for text in texts[1:]) if form == "csv" else "\n".join(texts)
