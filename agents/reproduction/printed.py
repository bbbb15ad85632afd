"""The parts of a reproduction that a page of the documentation can show, as Markdown: `alma reproduce --print`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from agents.catalogue.spec import distinct
from agents.reproduction import findings_report, report
from agents.reproduction.cost import Cost, cost_of
from agents.reproduction.hours_taken import hours_table
from agents.reproduction.outcome import Outcome, judge_outcomes
from agents.reproduction.plans import SCALES, Plan, Request
from agents.runs.load import FinishedRun

PARTS = ("summary", "headlines", "findings", "scores", "comparisons", "costs", "hours")


def printed(part: str, outcomes: Sequence[Outcome], runs: Sequence[FinishedRun], request: Request) -> str:
    """Return a part of the outcomes of plans.

    Args:
        part: ``summary``, how many findings hold; ``headlines``, the verdicts on the best known findings;
            ``findings``, the table of all verdicts; ``scores``, the CER of each plan by waiting time, or its
            perplexities; ``comparisons``, every comparison behind the findings; ``costs``, the costs of the plans
            at each scale, for which no run is needed; ``hours``, the hours that the finished runs took.
        outcomes: of the plans.
        runs: the finished runs, see `judge_outcomes`.
        request: what was asked of the plans.

    Raises:
        ValueError: there is no such part.
    """
    if part not in PARTS:
        raise ValueError(f"--print {part}: there is no such part; choose one of {', '.join(PARTS)}")
    if part == "costs":
        return report.costs_table(_costs([one.plan for one in outcomes], request))
    if part == "hours":
        return hours_table(outcomes, request)
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


def _costs(plans: Sequence[Plan], request: Request) -> Iterator[tuple[str, str, Cost]]:
    """Yield the cost of each plan at each scale, and that of all plans together, where a run counts once."""
    specs = {one.name: {scale: one.specs(scale, request.seeds, request.settings) for scale in SCALES} for one in plans}
    for name, scale in itertools.product(specs, SCALES):
        yield name, scale, cost_of(specs[name][scale])
    for scale in SCALES if len(plans) > 1 else ():
        once = distinct(spec for of_plan in specs.values() for spec in of_plan[scale])
        yield "together", scale, cost_of(once)


def _scores(outcome: Outcome) -> str:
    """Return the number of finished runs of a plan, and the table of its scores."""
    return "\n".join(filter(None, [f"{outcome.plan.name}: {outcome.coverage}.\n", report.scores(outcome)]))
