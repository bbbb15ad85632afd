"""The measures of finished runs, and the table that the terminal shows: one line per setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from agents.analysis.statistics import Interval
from alma_env import Ledger, Score
from alma_env.rendering.text import UNITS as UNITS
from alma_env.rendering.text import engineering as engineering
from alma_env.rendering.text import unit_of as unit_of


@dataclass(frozen=True)
class Measure:
    """The error of a data set and its total over the ticks."""

    name: str  # of the error of one tick
    plural: str  # for the file name of a figure
    total: str  # the field of ``Score`` that holds the total
    heading: str  # of the total
    meaning: str  # of the total, for the caption
    digits: tuple[int, int]  # decimal places of the total and of one error
    logarithmic: bool = False  # the axis of curves

    def sum(self, score: Score) -> float:
        """Return the total of a score; NaN if it is undefined before tick 1."""
        value = getattr(score, self.total)
        return float("nan") if value is None else float(value)

    def summary(self, score: Score) -> str:
        """Return the result of a run in one line."""
        return (
            f"{self.heading} {self.sum(score):.2f}, final {self.name} {score.final_error:.4f}, "
            f"Comp {engineering(score.comp)} FLOPs, {score.seconds:.1f} s" + ", budget exceeded" * score.truncated
        )


ERROR_RATE = Measure("error", "errors", "cer", "CER", "sum of the test error over ticks 0..B (fractions)", (2, 3))
# At tick 0 the perplexity is the size of the vocabulary, which would dominate a sum and a linear axis.
PERPLEXITY = Measure(
    "perplexity",
    "perplexities",
    "mean_error_from_1",
    "average perplexity",
    "per token of the test text, mean over ticks 1..B",
    (2, 2),
    logarithmic=True,
)


def measure_of(protocol: Mapping[str, Any]) -> Measure:
    """Return the measure for a protocol, see ``AlmaEnv.protocol``; only text has a vocabulary."""
    return PERPLEXITY if "vocabulary" in protocol else ERROR_RATE


def require_error_rate(what: str, protocol: Mapping[str, Any]) -> None:
    """Raise ValueError if runs of this protocol have no CER to compare with prices."""
    measure = measure_of(protocol)
    if measure != ERROR_RATE:
        raise ValueError(
            f"{what}: costs are errors and prices, and the runs have a {measure.name}, not an error rate; compare runs "
            "on images, or use `alma table`"
        )


OVER_BUDGET, DECLARED = "†", "§"
_MARKS = {
    OVER_BUDGET: "a run exceeded its budget; the predictor from before the excess answered all later ticks",
    DECLARED: "a run declared a part of Comp, which was not counted",
}


def marks_of(scores: Iterable[Score]) -> str:
    """Return the marks that the line of these scores needs in a table."""
    all_scores = list(scores)
    over_budget = any(score.truncated for score in all_scores)
    return OVER_BUDGET * over_budget + DECLARED * any(score.declared for score in all_scores)


def marked(label: str, marks: str) -> str:
    """Return a label with its marks."""
    return f"{label} {marks}" if marks else label


def explain(marks: Iterable[str]) -> list[str]:
    """Return a sentence on each of the given marks."""
    present = set("".join(marks))
    return [f"{mark}: {meaning}." for mark, meaning in _MARKS.items() if mark in present]


def table(groups: Mapping[str, Sequence[Ledger]], *, title: str, measure: Measure = ERROR_RATE) -> Table:
    """Return a table with one line per setting: mean and 95 % interval over seeds of CER, Mem, Comp and final error.

    ``groups`` maps the label of each setting to the ledgers of its seeds. For text, average perplexity replaces CER.
    """
    marks = {label: marks_of(ledger.score() for ledger in ledgers) for label, ledgers in groups.items()}
    caption = _CAPTION.format(heading=measure.heading, meaning=measure.meaning)
    out = Table(
        title=escape(title),
        title_justify="left",
        caption=" ".join([caption, *explain(marks.values())]),
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,  # fits 80 columns
        pad_edge=False,
    )
    out.add_column("agent", overflow="fold")  # labels are not cut, because they may differ at the end
    for name in ("n", measure.heading, f"final {measure.name}", "Mem", "Comp", "paper", "s"):
        # Long headings take two lines, so that the table fits 80 columns.
        heading = name.replace(" ", "\n") if len(name) > 12 else name
        out.add_column(heading, justify="right", no_wrap=True)
    total_form, error_form = (f".{digits}f" for digits in measure.digits)
    for label, ledgers in groups.items():
        scores = [ledger.score() for ledger in ledgers]
        out.add_row(
            escape(marked(label, marks[label])),
            str(len(scores)),
            Interval.of([measure.sum(score) for score in scores]).text(total_form),
            Interval.of([score.final_error for score in scores]).text(error_form),
            engineering(mean(float(score.mem) for score in scores)),
            engineering(mean(float(score.comp) for score in scores)),
            engineering(mean(float(score.paper_flops) for score in scores)),
            f"{mean(score.seconds for score in scores):.0f}",
        )
    return out


_CAPTION = (
    "n: seeds. {heading}: {meaning}. Mem: sum of parameters. Comp: FLOPs executed, "
    "validation and growth included; paper: 6 per forward multiply-add in training, plus growth. "
    "±: 95 % interval over seeds."
)
