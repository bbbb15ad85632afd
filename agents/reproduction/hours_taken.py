"""The hours that finished runs took, beside those that the rates of the package foresee."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from agents.analysis.markdown import table
from agents.catalogue.spec import RunSpec
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome
from agents.reproduction.plans import Request
from agents.reproduction.report import hours
from agents.runs.load import FinishedRun


def hours_table(outcomes: Sequence[Outcome], request: Request) -> str:
    """Return a table by stream, engine and vector instructions; a run that several plans need counts once.

    A run took the ``seconds`` of its ledger, the wall-clock time of its process, also while it shared a core.
    """
    pairs = {id(run): (run, spec) for outcome in outcomes for run, spec in _with_specs(outcome, request)}
    groups: dict[tuple[str, ...], list[tuple[FinishedRun, RunSpec]]] = defaultdict(list)
    for run, spec in pairs.values():
        config = run.run_config
        simd = config.get("machine.simd", "unknown")
        groups[config.env.replace("-ALMA-v0", ""), config.agent.record.get("engine", "plain"), simd].append((run, spec))
    rows = []
    for names, of_group in sorted(groups.items()):
        taken = sum(sum(run.columns.seconds) for run, _ in of_group)
        foreseen = cost_of(spec for _, spec in of_group).seconds
        rows.append((*names, f"{len(of_group):,}", hours(taken), hours(foreseen), f"{taken / foreseen:.2f}"))
    headings = ("stream", "engine", "vector instructions", "runs", "hours taken", "hours foreseen", "taken / foreseen")
    return table(headings, rows, right=(3, 4, 5, 6))


def _with_specs(outcome: Outcome, request: Request) -> zip[tuple[FinishedRun, RunSpec]]:
    """Return the finished runs of a plan with their specifications, which have the same order."""
    missing = {spec.digest() for spec in outcome.missing}
    specs = outcome.plan.specs(outcome.scale, request.seeds, request.settings)
    return zip(outcome.runs, (spec for spec in specs if spec.digest() not in missing), strict=True)
