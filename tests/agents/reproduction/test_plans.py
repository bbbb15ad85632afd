"""The plans expand to the grids of the paper, and to smaller grids at the smaller scales."""

from __future__ import annotations

import pytest

from agents.catalogue.spec import RunSpec
from agents.reproduction import plans
from agents.reproduction.cost import cost_of


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("fig2", 6 * 5 * 3 * 3),
        ("fig4", 6 * 5 * 2 * 3),
        ("fig7", 5 * 5 * 5 * 10),
        ("fig8", 6 * 5 * 3 * 2 * 3),
        ("tab1", 2 * 3 * 3),
        ("tab2", 2 * (3 + 4 + 2 + 4 + 2) * 3),
        ("fig5", 2 * (3 + 2 + 2) * 3),
    ],
)
def test_a_grid_of_the_paper_has_all_runs(name, runs):
    assert len(plans.read(name).specs("gpu")) == runs


@pytest.mark.parametrize("scale", plans.SCALES)
@pytest.mark.parametrize("name", ["tab1", "fig5"])
def test_a_plan_that_is_a_part_of_another_has_only_runs_of_that_plan(name, scale):
    whole = plans.read("tab2")
    runs = plans.read(name).specs(scale)
    assert {str(spec) for spec in runs} < {str(spec) for spec in whole.specs(scale)}
    assert plans.read(name).scales[scale].needs == whole.scales[scale].needs


@pytest.mark.parametrize("name", plans.NAMES)
def test_a_plan_has_valid_hyperparameters_and_costs_less_at_a_smaller_scale(name):
    costs = [cost_of(plans.read(name).specs(scale)) for scale in plans.SCALES]
    assert costs[0].training < costs[1].training
    assert costs[0].seconds < costs[1].seconds
    if name == "fig3-mnist":  # the paper's grid fits on two cores
        assert costs[1] == costs[2]
    else:
        assert costs[1].training < costs[2].training


@pytest.mark.parametrize("name", [name for name in plans.NAMES if not name.startswith(("tab", "fig5"))])
def test_two_cores_run_the_epochs_of_the_paper(name):
    settings = {(key, value) for spec in plans.read(name).specs("cpu") for key, value in spec.settings.items()}
    assert {value for key, value in settings if key == "epochs"} <= {100}  # no value is the recipe's
    assert not any(key == "candidates" for key, _ in settings)


def test_the_most_useful_runs_on_cifar_come_first():
    def part(spec: RunSpec) -> tuple[str, int | None, bool]:
        return spec.agent, spec.width, spec.replay

    specs = plans.read("fig2").specs("cpu")
    methods = ("sm", "ens", "umix", "gens", "gmoe", "ff")
    assert [part(spec) for spec in specs[::9]] == [
        *((agent, 4, False) for agent in methods),
        *((agent, 8, False) for agent in methods[:4]),
        ("sm", 16, False),
        ("sm", 32, False),
    ]
    replayed = [spec for spec in plans.read("fig8").specs("cpu") if spec.replay]
    shortest = [(spec.agent, spec.seed) for spec in replayed if spec.wait == 2]
    assert shortest == [("sm", 0), ("sm", 1), ("sm", 2), ("ens", 0)]
    order = plans.NAMES.index
    assert order("fig7") < order("fig7-fashion") < order("fig2") < order("fig8") < order("ablation") < order("fig4")


def test_runs_of_more_than_ten_minutes_on_mnist_have_five_seeds():
    specs = plans.read("fig7").specs("cpu")
    by_setting: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_setting.setdefault(str(spec.with_seed(0)), []).append(spec)
    for runs in by_setting.values():
        long = cost_of(runs[:1]).seconds > 600
        assert len(runs) == (5 if long else 10), runs[0]
    assert {spec.width for spec in specs if (spec.agent, spec.wait) == ("gmoe", 1)} == {4, 8}


def test_seeds_and_settings_replace_those_of_the_plan():
    specs = plans.read("ablation").specs("smoke", [7], {"epochs": 3})
    assert {spec.seed for spec in specs} == {7}
    assert {spec.settings["epochs"] for spec in specs} == {3}
    with pytest.raises(ValueError, match="--set tree=True: ablation compares runs.*differ in tree; leave it out"):
        plans.read("ablation").specs("smoke", [7], {"tree": True})


def test_seeds_replace_those_of_a_part_of_the_grid():
    specs = plans.read("fig8").specs("cpu", [3, 4])
    assert {spec.seed for spec in specs if spec.wait == 2 and spec.replay} == {3, 4}


def test_an_unknown_plan_is_refused():
    with pytest.raises(ValueError, match="plan='fig9'.*no such plan; choose one of fig7"):
        plans.read("fig9")


@pytest.mark.parametrize("name", [name for name in plans.NAMES if not plans.read(name).text])
def test_the_table_of_a_plan_compares_several_lines(name: str) -> None:
    plan = plans.read(name)
    lines: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    for spec in plan.specs("gpu"):
        line = {"env": spec.env, "agent": spec.agent, "width": spec.width, "when": spec.wait, "replay": spec.replay}
        lines.setdefault(tuple(line[key] for key in plan.by), set()).add(tuple(line.values()))
    assert max(map(len, lines.values())) > 1
