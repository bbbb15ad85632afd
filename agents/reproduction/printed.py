"""The parts of a reproduction that a page of the documentation can show, as Markdown: `alma reproduce --print`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from agents.reproduction import findings_report, report
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome, judge_outcomes
from agents.reproduction.plans import SCALES, Request
from agents.runs.load import FinishedRun

PARTS = ("summary", "headlines", "findings", "scores", "comparisons", "costs")


def printed(part: str, outcomes: Sequence[Outcome], runs: Sequence[FinishedRun], request: Request) -> str:
    """Return a part of the outcomes of plans.

    Args:
        part: ``summary``, how many findings hold; ``headlines``, the verdicts on the best known findings;
            ``findings``, the table of all verdicts; ``scores``, the CER of each plan by waiting time, or its
            perplexities; ``comparisons``, every comparison behind the findings; ``costs``, the costs of the plans
            at each scale, for which no run is needed.
        outcomes: of the plans.
        runs: the finished runs, see `judge_outcomes`.
        request: what was asked of the plans.

    Raises:
        ValueError: there is no such part.
    """
    if part not in PARTS:
        raise ValueError(f"--print {part}: there is no such part; choose one of {', '.join(PARTS)}")
    if part == "costs":
        return report.costs_table(
            (one.plan.name, scale, cost_of(one.plan.specs(scale, request.seeds, request.settings)))
            for one, scale in itertools.product(outcomes, SCALES)
        )
    if part == "scores":
        return "\n".join(map(_scores, outcomes))
    judged = judge_outcomes(outcomes, runs, request)
    if not any(part != "headlines" or one.finding.id in findings_report.HEADLINES for one in judged):
        kind = "finding of the front page" if part == "headlines" else "finding"
        return f"{', '.join(outcome.plan.name for outcome in outcomes)}: no {kind} is judged.\n"
    if part == "summary":
        return findings_report.summary(judged)
    if part == "headlines":
        return findings_report.headlines(judged)
    if part == "findings":
        return findings_report.findings_table(judged, request)
    return findings_report.comparisons_text(judged, request)


def _scores(outcome: Outcome) -> str:
    """Return the number of finished runs of a plan, and the table of its scores."""
    return "\n".join(filter(None, [f"{outcome.plan.name}: {outcome.coverage}.\n", report.scores(outcome)]))
