"""The expected cost of a run equals its metered cost."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest
import torch

import agents
import alma_env
from agents.catalogue.data_facts import SIZES
from agents.catalogue.effort import effort_of
from agents.catalogue.spec import RunSpec, resolve
from agents.networks.mlp_vgg import MLP, VGG19
from agents.reproduction.cost import cost_of
from agents.runs.run import config_of

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
def test_training_flops_equal_those_of_the_documented_runs(env, agent, width, wait, settings, teraflops):
    cost = cost_of([RunSpec(f"{env}-ALMA-v0", agent, width, wait, settings=settings)])
    assert round(cost.training / 1e12, 3) == teraflops


@pytest.mark.parametrize(("width", "teraflops"), [(4, 3.370), (8, 9.530)])
def test_training_flops_of_firefly_are_known_approximately(width, teraflops):
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
def test_cost_and_configuration_of_a_run_are_those_expected(agent, settings, replay):
    spec = RunSpec("Digits-ALMA-v0", agent, 4, wait=2, replay=replay, seed=1, settings={**FAST, **settings, "ticks": 5})
    env = spec.make_env()
    ledger = agents.run(env, spec.make_agent(env), seed=1)
    assert cost_of([spec]).training == ledger.score().paper_flops
    config = config_of(env, spec.make_agent(env), 1)
    assert resolve(spec, spec.known_facts()).agrees(config)
    other = RunSpec("Digits-ALMA-v0", agent, 4, wait=2, replay=replay, seed=1, settings={**settings, "ticks": 5})
    assert not resolve(other, other.known_facts()).agrees(config)  # another number of epochs


def test_text_costs_six_flops_per_multiply_add_of_its_updates():
    spec = RunSpec("Text-ALMA-v0", "ens", 4, wait=4, settings={"updates": 2, "epochs": 1, "warmup": 1, "size": "tiny"})
    env = spec.make_env()
    agent = spec.make_agent(env)
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    known = SIZES["Text"]
    assert observation["train"]["x"].shape == (known.train, known.tokens)
    assert len(observation["valid"]["x"]) == known.valid
    assert env.data.classes == known.vocabulary
    per_sequence = env.ledger[0].inference_flops / 2  # two members
    assert cost_of([spec]).training == pytest.approx(2 * 2 * 24 * 3 * per_sequence, rel=1e-3)


@pytest.mark.parametrize(
    ("env", "classes"), [("FashionMNIST", 10), ("EMNIST", 62), ("CIFAR10", 10), ("CIFAR100", 100), ("MNIST", 10)]
)
def test_the_parameters_of_a_network_follow_from_the_number_of_classes(env, classes):
    generator = torch.Generator()
    network = VGG19(4, classes, generator=generator) if env[0] == "C" else MLP(784, 4, classes, generator=generator)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    spec = RunSpec(f"{env}-ALMA-v0", "sm", 4, wait=50)
    facts = spec.known_facts()
    assert effort_of(resolve(spec, facts), facts).parameters == parameters
    assert cost_of([spec]).seconds > 0


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_growing_ensembles_cost_what_the_single_model_costs(width):
    """Only their newest member trains, and the older members keep their answers."""
    single, growing = (cost_of([RunSpec("CIFAR10-ALMA-v0", agent, width, 10)]) for agent in ("sm", "gens"))
    assert growing.training == single.training
    assert growing.seconds == pytest.approx(single.seconds)


def test_growth_of_firefly_has_its_own_rate():
    """With more candidates only the growth steps cost more, by their FLOPs divided by the rate of growth."""
    specs = [RunSpec("CIFAR10-ALMA-v0", "ff", 4, 10, settings={"candidates": candidates}) for candidates in (70, 140)]
    facts = specs[0].known_facts()
    few, many = (effort_of(resolve(spec, facts), facts) for spec in specs)
    growth = many.growth_flops - few.growth_flops
    assert many.training_flops - few.training_flops == pytest.approx(growth)
    rate = growth / (cost_of(specs[1:]).seconds - cost_of(specs[:1]).seconds)
    table = tomllib.loads((files("agents.reproduction") / "throughput.toml").read_text(encoding="utf-8"))
    assert rate == pytest.approx(1e9 * table["CIFAR10"]["ff-growth"]["4"])


@pytest.mark.parametrize("name", ["Digits"])
def test_the_sizes_of_the_data_are_known_without_loading_the_data(name):
    env = alma_env.make(f"{name}-ALMA-v0")
    assert (len(env.data.train_x), len(env.data.test_x)) == (SIZES[name].train, SIZES[name].test)


def test_the_sizes_of_the_data_follow_the_keywords_of_the_environment():
    text = {"updates": 2, "epochs": 1, "warmup": 1, "size": "tiny", "vocabulary_size": 300, "sequence_length": 32}
    spec = RunSpec("Text-ALMA-v0", "sm", 4, wait=4, settings=text)
    env = spec.make_env()
    env.reset(seed=0, options={"predictor": spec.make_agent(env).predictor})
    expected = 2 * 24 * 3 * env.ledger[0].inference_flops
    assert cost_of([spec]).training == pytest.approx(expected, rel=1e-3)
    few, many = (
        cost_of([RunSpec("EMNIST-ALMA-v0", width=4, settings={"split": name})]) for name in ("digits", "byclass")
    )
    assert few.training < many.training * 240_000 / 697_932
