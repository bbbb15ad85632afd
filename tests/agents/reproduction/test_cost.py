"""Costs are those that the meter counted in runs that were made, and the plans expand to the paper's grids."""

from __future__ import annotations

import pytest

import agents
import alma_env
from agents.experiments.spec import RunSpec
from agents.reproduction import plan
from agents.reproduction.cost import DATA, cost_of
from agents.reproduction.expected import expected

FAST = {"ticks": 4, "epochs": 1}


@pytest.mark.parametrize(
    ("env", "agent", "width", "wait", "settings", "teraflops"),
    [
        ("MNIST", "sm", 4, 10, {}, 0.103),
        ("MNIST", "sm", 64, 500, {}, 1.779),
        ("MNIST", "umix", 4, 50, {}, 0.517),
        ("MNIST", "gens", 64, 50, {}, 1.779),
        ("MNIST", "gmoe", 4, 10, {}, 3.858),
        ("MNIST", "gmoe", 64, 50, {}, 9.942),
        ("CIFAR10", "ens", 8, 10, {"epochs": 5}, 8.772),
        ("CIFAR10", "gmoe", 8, 10, {"epochs": 5}, 4.757),
    ],
)
def test_training_flops_are_those_of_the_runs_in_the_documentation(env, agent, width, wait, settings, teraflops):
    cost = cost_of([RunSpec(f"{env}-ALMA-v0", agent, width, wait, settings=settings)])
    assert round(cost.training / 1e12, 3) == teraflops


@pytest.mark.parametrize(("width", "teraflops"), [(4, 3.370), (8, 9.530)])
def test_fireflys_are_roughly_known(width, teraflops):
    settings = {"epochs": 5, "candidates": 2 * width}
    cost = cost_of([RunSpec("CIFAR10-ALMA-v0", "ff", width, 10, settings=settings)])
    assert cost.training / 1e12 == pytest.approx(teraflops, rel=0.25)


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("sm", {}),
        ("gens", {"members": 2}),
        ("gmoe", {"growth": "every:2", "init_experts": 2}),
        ("moe", {}),
        ("gens-moe", {}),
    ],
)
@pytest.mark.parametrize("replay", [False, True])
def test_a_run_costs_what_was_expected_and_its_record_says_what_was_expected(agent, settings, replay):
    spec = RunSpec("Digits-ALMA-v0", agent, 4, wait=2, replay=replay, seed=1, settings={**FAST, **settings, "ticks": 5})
    env = spec.make_env()
    ledger = agents.run(env, spec.make_agent(env), seed=1)
    assert cost_of([spec]).training == ledger.score().paper_flops
    assert expected(spec).agrees(agents.runs.describe(env, spec.make_agent(env), 1))
    other = RunSpec("Digits-ALMA-v0", agent, 4, wait=2, replay=replay, seed=1, settings={**settings, "ticks": 5})
    assert not expected(other).agrees(agents.runs.describe(env, spec.make_agent(env), 1))  # of another number of epochs


def test_text_costs_six_flops_per_multiply_add_of_its_updates():
    spec = RunSpec("Text-ALMA-v0", "ens", 4, wait=4, settings={"updates": 2, "epochs": 1, "warmup": 1, "size": "tiny"})
    env = spec.make_env()
    agent = spec.make_agent(env)
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    known = DATA["Text"]
    assert observation["train"]["x"].shape == (known.train, known.tokens)
    assert len(observation["valid"]["x"]) == known.valid
    assert env.data.classes == known.vocabulary
    per_sequence = env.ledger[0].inference_flops / 2  # of two members
    assert cost_of([spec]).training == pytest.approx(2 * 2 * 24 * 3 * per_sequence, rel=1e-3)


@pytest.mark.parametrize("name", ["Digits"])
def test_the_sizes_of_the_data_are_known_without_loading_it(name):
    env = alma_env.make(f"{name}-ALMA-v0")
    assert (len(env.data.train_x), len(env.data.test_x)) == (DATA[name].train, DATA[name].test)


@pytest.mark.parametrize(
    ("name", "runs"),
    [("fig2", 6 * 5 * 3 * 3), ("fig4", 6 * 5 * 2 * 3), ("fig7", 5 * 5 * 5 * 3), ("tab2", 2 * (3 + 4 + 2 + 4 + 2) * 3)],
)
def test_the_papers_grids_have_all_of_its_runs(name, runs):
    assert len(plan.read(name).specs("gpu")) == runs


@pytest.mark.parametrize("name", plan.NAMES)
def test_a_plan_names_hyperparameters_that_exist_and_costs_less_at_a_smaller_scale(name):
    costs = [cost_of(plan.read(name).specs(scale)) for scale in plan.SCALES]
    assert costs[0].training < costs[1].training < costs[2].training
    assert costs[0].seconds < costs[1].seconds


def test_seeds_and_settings_take_the_place_of_a_plans():
    specs = plan.read("ablation").specs("smoke", [7], {"epochs": 3})
    assert {spec.seed for spec in specs} == {7}
    assert {spec.settings["epochs"] for spec in specs} == {3}
    with pytest.raises(ValueError, match="--set tree=True: ablation compares runs that differ in it"):
        plan.read("ablation").specs("smoke", [7], {"tree": True})


def test_a_plan_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="fig9: there is no such plan; choose one of fig2"):
        plan.read("fig9")
