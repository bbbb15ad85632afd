"""The table of hours counts a run of several plans once, and tells engines apart."""

from __future__ import annotations

import pytest

from agents.reproduction import plans
from agents.reproduction.cost import cost_of
from agents.reproduction.hours_taken import hours_table
from agents.reproduction.outcome import Outcome
from agents.reproduction.plans import Request
from agents.reproduction.report import hours

from .synthetic import constant


def test_a_run_of_two_plans_counts_once_and_missing_runs_do_not_count():
    request = Request("smoke", [0])
    specs = {name: plans.read(name).specs("smoke", [0]) for name in ("fig2", "fig3")}
    shared = {spec.digest() for spec in specs["fig2"]} & {spec.digest() for spec in specs["fig3"]}
    assert shared
    done = {spec.digest(): spec for of_plan in specs.values() for spec in of_plan[1:]}
    runs = {digest: constant(spec, 0.5) for digest, spec in done.items()}
    outcomes = [Outcome.of(plans.read(name), "smoke", own, runs.values()) for name, own in specs.items()]
    (row,) = hours_table(outcomes, request).splitlines()[2:]
    seconds, foreseen = sum(sum(run.columns.seconds) for run in runs.values()), cost_of(done.values()).seconds
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:6] == ["Digits", "plain", "unknown", str(len(done)), hours(seconds), hours(foreseen)]
    assert float(cells[6]) == pytest.approx(seconds / foreseen, abs=0.005)
