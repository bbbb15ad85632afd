"""The plans expand to the grids of the paper, and to smaller grids at the smaller scales."""

from __future__ import annotations

import pytest

from agents.reproduction import plans
from agents.reproduction.cost import cost_of


@pytest.mark.parametrize(
    ("name", "runs"),
    [("fig2", 6 * 5 * 3 * 3), ("fig4", 6 * 5 * 2 * 3), ("fig7", 5 * 5 * 5 * 3), ("tab2", 2 * (3 + 4 + 2 + 4 + 2) * 3)],
)
def test_a_grid_of_the_paper_has_all_runs(name, runs):
    assert len(plans.read(name).specs("gpu")) == runs


@pytest.mark.parametrize("name", plans.NAMES)
def test_a_plan_has_valid_hyperparameters_and_costs_less_at_a_smaller_scale(name):
    costs = [cost_of(plans.read(name).specs(scale)) for scale in plans.SCALES]
    assert costs[0].training < costs[1].training < costs[2].training
    assert costs[0].seconds < costs[1].seconds


def test_seeds_and_settings_replace_those_of_the_plan():
    specs = plans.read("ablation").specs("smoke", [7], {"epochs": 3})
    assert {spec.seed for spec in specs} == {7}
    assert {spec.settings["epochs"] for spec in specs} == {3}
    with pytest.raises(ValueError, match="--set tree=True: ablation compares runs.*differ in tree; leave it out"):
        plans.read("ablation").specs("smoke", [7], {"tree": True})


def test_an_unknown_plan_is_refused():
    with pytest.raises(ValueError, match="plan='fig9'.*no such plan; choose one of fig2"):
        plans.read("fig9")
