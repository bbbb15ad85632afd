"""The findings as Markdown: how many hold, a table of the verdicts, and every comparison behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agents.analysis.markdown import table
from agents.reproduction.claims.combined import needs_seeds, seeds_text
from agents.reproduction.claims.findings import (
    DOES_NOT_HOLD,
    HOLDS_WHERE_RUN,
    MIXED,
    NOT_OF_THE_PAPER,
    JudgedFinding,
)
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NO_EQUAL, NOT_RUN, UNDECIDED, PairedComparison
from agents.reproduction.cost import cost_of
from agents.reproduction.missing import missing_runs
from agents.reproduction.plans import Request, that_decide
from agents.reproduction.report import hours

DATA = {
    "cifar": "CIFAR-10",
    "mnist": "MNIST",
    "fashion": "Fashion-MNIST",
    "text": "text",
    "ablation": "CIFAR-10, first version",
}
HEADLINES = (  # of the front page: what the paper is known for
    *("cifar-a", "mnist-small", "mnist-large", "mnist-tardy", "mnist-ens"),
    *("mnist-growing", "mnist-gens", "cifar-j", "text-iid"),
)
NAMED = 3  # most contradicted comparisons that a verdict names
RULE = """\
A comparison is a difference, paired over the seeds that both sides have: mean ± 95 % interval of Student's t. It holds
if it is on the predicted side of zero with p < 0.05, is contradicted if it is on the other side with p < 0.05, and is
undecided otherwise or with one seed. The p-values are corrected by Holm's method over the comparisons of the finding. A
method that grows is compared with a fixed method of equal size or cost, if one was run.

The combined test of a finding takes, for each seed, the mean of its comparisons on the paper's side, and then
Student's t over seeds. For a prediction of closeness it takes the tolerance minus the difference; such a test is no
evidence against the finding. It counts a comparison in per cent of the mean of the two compared values, so no
difference is above 200 %. A finding holds if no comparison is contradicted, and either the combined test is on the
paper's side or each comparison holds. It does not hold if the evidence, comparisons or combined test, is only against
it. It is mixed if there is evidence for it and against it. Otherwise it is undecided. "Where run" says that some
comparisons have no runs or one seed.

"Seeds to decide" is the number of seeds with which the test decides with a probability of 80 %, if the measured mean
and spread are the true ones, and the other decided comparisons stay decided. Missing runs are those of settings without
any run; their price is in hours of one core. d is the mean difference divided by its standard deviation between seeds.
"""


def summary(judged: Sequence[JudgedFinding]) -> str:
    """Return the number of findings by verdict as text: those of the paper, and those on other data."""
    of_paper = [one for one in judged if one.finding.family not in NOT_OF_THE_PAPER]
    lines = [_summary(of_paper, f"Of {len(of_paper)} findings of the paper")] if of_paper else []
    for family in NOT_OF_THE_PAPER:
        others = [one for one in judged if one.finding.family == family]
        if others:
            lines.append(_summary(others, f"Of {len(others)} of these findings repeated on {DATA[family]}"))
    return "\n".join(lines) + "\n"


_COUNTED = {
    DOES_NOT_HOLD: ("does not hold", "do not hold"),
    MIXED: ("is mixed", "are mixed"),
    UNDECIDED: ("is undecided", "are undecided"),
    NOT_RUN: ("was not run", "were not run"),
}


def _summary(judged: Sequence[JudgedFinding], start: str) -> str:
    verdicts = [one.verdict for one in judged]
    in_part = verdicts.count(HOLDS_WHERE_RUN)
    holding = verdicts.count(HOLDS) + in_part
    parts = [f"{holding} {'holds' if holding == 1 else 'hold'}"]
    if in_part:
        parts[0] += f" ({in_part} of them in the part of the grid that was run)"
    for verdict, (one, several) in _COUNTED.items():
        if count := verdicts.count(verdict):
            parts.append(f"{count} {one if count == 1 else several}")
    *others, last = parts
    return f"{start}, {', '.join(others)} and {last}." if others else f"{start}, {last}."


def headlines(judged: Sequence[JudgedFinding]) -> str:
    """Return a table of the findings that the paper is known for, each with the word of its verdict."""
    found = {one.finding.id: one for one in judged}
    rows = [
        (DATA[one.finding.family], one.finding.statement.removeprefix("as on CIFAR-10: "), _bold(one.verdict))
        for one in map(found.get, HEADLINES)
        if one is not None
    ]
    return table(("data", "the paper finds", "verdict"), rows)


def findings_table(judged: Sequence[JudgedFinding], request: Request) -> str:
    """Return a table of findings: verdict, combined test, and number of comparisons by verdict.

    A column names the data if the findings are on several.
    """
    columns = {
        "data": [DATA[one.finding.family] for one in judged],
        "finding": [one.finding.statement for one in judged],
        "verdict": [_verdict_cell(one, request) for one in judged],
        "on the paper's side by ± 95 %": [combined_text(one) or "–" for one in judged],
        "comparisons": [counts(one) for one in judged],
    }
    if len(set(columns["data"])) == 1:
        del columns["data"]
    return table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _verdict_cell(judged: JudgedFinding, request: Request) -> str:
    text = verdict_text(judged, request)
    return _bold(text) if judged.with_runs else text


def _bold(verdict: str) -> str:
    """Return a verdict with its reason; the verdict is bold."""
    word, semicolon, reason = verdict.partition("; ")
    return f"**{word}**{semicolon}{reason}"


def verdict_text(judged: JudgedFinding, request: Request) -> str:
    """Return the verdict with its reason: contradicted comparisons, the seeds needed, or the cost of missing runs."""
    verdict = judged.verdict
    if verdict in (MIXED, DOES_NOT_HOLD):
        several = len({one.quantity for one in judged.comparisons}) > 1
        against = [one.label + f" ({one.quantity})" * several for one in judged.having(CONTRADICTED)]
        more = f" and {len(against) - NAMED} more" if len(against) > NAMED else ""
        return verdict + (f"; contradicted: {'; '.join(against[:NAMED])}{more}" if against else "")
    if verdict == UNDECIDED:
        if judged.combined is None:
            return f"{verdict}; {'too few common seeds' if judged.p_values else 'one seed'}"
        return f"{verdict}; {seeds_text(judged.seeds_needed)} seeds would decide"
    if verdict == NOT_RUN and not judged.missing:  # every setting has runs
        return f"{verdict}; {NO_EQUAL if judged.count(NO_EQUAL) else 'no common seeds; run the same --seeds for all'}"
    if verdict == NOT_RUN or (verdict == HOLDS_WHERE_RUN and judged.missing):
        cost = cost_of(missing_runs(judged, request))
        if not cost.runs:
            return f"{verdict}; the missing runs are in no plan"
        runs = f"{cost.runs:,} {'run' if cost.runs == 1 else 'runs'}"
        return f"{verdict}; missing: {runs}, {hours(cost.seconds)} hours"
    return verdict


def combined_text(judged: JudgedFinding) -> str:
    """Return the combined test: mean ± 95 % interval and number of seeds; empty if there is none."""
    if judged.combined is None:
        return ""
    interval = judged.combined.interval
    percent = type(interval)(100 * interval.mean, None if interval.half is None else 100 * interval.half, interval.n)
    few = "" if judged.combined.comparisons == len(judged.p_values) else f", {judged.combined.comparisons} comparisons"
    return f"{percent.text('+.1f').replace('-', '−')} %, {interval.n} seeds{few}"


def counts(judged: JudgedFinding) -> str:
    """Return the number of comparisons by verdict as text."""
    texts = {HOLDS: "hold"} | {verdict: verdict for verdict in (CONTRADICTED, UNDECIDED, NOT_RUN, NO_EQUAL)}
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
            str(len(one.differences)),
            _p_text(judged.p_of(one)),
            judged.verdict_of(one),
            needs_seeds(one, judged.verdict_of(one), judged.tests_to_decide),
        )
        for one in judged.with_runs
    ]
    headings = ("difference", "of", "predicted", "mean ± 95 %", "d", "seeds", "p (Holm)", "verdict", "seeds to decide")
    return table(headings, rows)


def comparisons_text(judged: Iterable[JudgedFinding], request: Request) -> str:
    """Return every comparison of findings that have runs, with the verdict and combined test of each finding."""
    parts = []
    for one in judged:
        if one.with_runs:
            combined = f"On the paper's side by {combined_text(one)}. " if one.combined else ""
            head = f"{_bold(verdict_text(one, request))}. {combined}Weakest: {weakest(one)}. {_command(one, request)}\n"
            parts += [f"### {one.finding.id}: {one.finding.statement}\n", head, comparisons_table(one)]
            if one.count(NOT_RUN):
                parts.append(f"{one.count(NOT_RUN)} more comparisons were not run.\n")
            unequal = [other.label for other in one.having(NO_EQUAL)]
            if unequal:
                parts.append(f"Comparisons {NO_EQUAL}: {'; '.join(unequal)}.\n")
    return "\n".join(parts)


def _command(judged: JudgedFinding, request: Request) -> str:
    """Return the command that computes the runs of a finding."""
    return f"Command: `alma reproduce {' '.join(that_decide(judged.finding.id))} {request.options}`."


def findings_section(judged: Sequence[JudgedFinding], request: Request) -> str:
    """Return the section on the findings: how many hold, their table, the rule of the verdicts, and the comparisons.

    It is empty for plans without findings.
    """
    if not judged:
        return ""
    parts = [summary(judged), findings_table(judged, request), RULE, comparisons_text(judged, request)]
    return "\n".join(["## The findings\n", *parts])


def _p_text(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _difference(comparison: PairedComparison) -> str:
    interval = comparison.interval
    if interval is None:
        return "–"
    largest = max(abs(interval.mean), interval.half or 0.0)
    if largest >= 1e5:
        return interval.text("+.3g").replace("-", "−")
    digits = 4 if largest < 0.1 else 3 if largest < 1 else 2 if largest < 100 else 1
    return interval.text(f"+.{digits}f").replace("-", "−")
